# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# common.sh: for `make test-gpu` (scripts/test-gpu.sh) and the rounds beside it (round1.sh, ...):
# everything that is to be run on a machine with GPUs, in pieces that end by themselves within BUDGET
# seconds, the most important steps first. A step has a time limit of its own, one that fails stops no
# other, and what has been found is in OUT after each step, whatever ends the script. A script that has
# options of its own defines `option WORD` before it reads this file.
#
#   scripts/gpu/roundN.sh [--list] [--only STEP[,STEP...]] [--skip STEP[,STEP...]]
#
#   --list             the steps, their limits and commands; runs nothing, needs no GPU
#   BUDGET=570         seconds for all, the build included; a step that finds no time left is not run
#   BUILD=build/gpu    the build directory; what is up to date there is used as it is
#   PREBUILT=1         nothing is built: BUILD holds lib, bin, tests, bench from another machine
#   OUT=build/gpu/out  results: summary.txt, *.jsonl rows, logs.tgz
#   JOBS=N             compile jobs
#   NCCL_TESTS=FOLDER  with all_reduce_perf and the rest of nccl-tests, for the steps that run them
#   CUSOLVERMP=FOLDER  include and lib of cuSOLVERMp, for the program that is somebody else's
#   PYTHON=python3     with PyTorch for the steps that need it
#
# NVLink multicast is left off in every library: it may be shared with others.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

BUILD=${BUILD:-build/gpu}
OUT=${OUT:-$BUILD/out}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
BUDGET=${BUDGET:-570}
ABREAST=${ABREAST:-3}
PYTHON=${PYTHON:-python3}
NCCL_TESTS=${NCCL_TESTS:-}
round=$(basename "$0" .sh)
LOGS=$BUILD/log/$round
SUMMARY=$OUT/summary.txt

usage() { # the comments that these files begin with
    awk 'FNR == 1 { inside = 1 } !/^#/ { inside = 0 } inside && FNR > 2 && !/shellcheck|^#!|SPDX/ { sub(/^# ?/, ""); print }' "$@"
}

list=0 only="" skip=""
while [ $# -gt 0 ]; do
    case $1 in
    --list) list=1 ;;
    --only) only=,${2:?--only needs steps}, && shift ;;
    --skip) skip=,${2:?--skip needs steps}, && shift ;;
    *)
        if ! declare -F option >/dev/null || ! option "$1"; then
            usage "$0" "${BASH_SOURCE[0]}"
            exit 2
        fi
        ;;
    esac
    shift
done

fail() {
    echo "$round: $*" >&2
    exit 1
}

left() { echo $((BUDGET - SECONDS)); }

# Everything so far into one file, so that nothing is lost.
save() {
    tar czf "$OUT/.logs.tgz" -C "$BUILD/log" "$round" && mv "$OUT/.logs.tgz" "$OUT/logs.tgz"
}

# "2 passed, 0 failed" of our programs, or the log's last line.
outcome() {
    grep -aE '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1 | grep . || tail -n 1 "$1" | cut -c1-100
}

# The lines of a failed step's log that say most.
why() {
    {
        grep -aE '(Error|ERROR|error|Exception)\b' "$1" | grep -avE 'error_file|/errors' | tail -n 4
        grep -av '^ok ' "$1" | tail -n 8
    } | cut -c1-200 | sed 's/^/    /'
}

wanted() { # wanted NAME
    { [ -z "$only" ] || [ "${only#*",$1,"}" != "$only" ]; } && [ "${skip#*",$1,"}" = "$skip" ]
}

# step NAME SECONDS COMMAND...: its output into LOGS/NAME.log, its verdict into the summary.
step() {
    local name=$1 limit=$2 begin=$SECONDS status word
    shift 2
    wanted "$name" || return 0
    if [ $list = 1 ]; then
        printf '%-16s %4d s  %s\n' "$name" "$limit" "$*"
        return 0
    fi
    if [ "$(left)" -lt 15 ]; then
        printf '%-16s %4d s  not run: no time left\n' "$name" 0 | tee -a "$SUMMARY"
        return 0
    fi
    [ "$limit" -le "$(left)" ] || limit=$(left)
    timeout -k 5 "$limit" "$@" >"$LOGS/$name.log" 2>&1
    status=$?
    case $status in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137) word="FAILED (over $limit s)" ;;
    *) word="FAILED ($status)" ;;
    esac
    printf '%-16s %4d s  %-10s %s\n' "$name" $((SECONDS - begin)) "$word" \
        "$(outcome "$LOGS/$name.log")" | tee -a "$SUMMARY"
    case $word in FAILED*) why "$LOGS/$name.log" ;; esac
    [ "$BASHPID" != $$ ] || save # (those that run beside others would write at the same time)
}

# The same beside others, at most ABREAST at once: for tests, whose time is the start of CUDA.
abreast() {
    [ $list = 1 ] || while [ "$(jobs -rp | wc -l)" -ge "$ABREAST" ]; do wait -n; done
    if [ $list = 1 ]; then step "$@"; else step "$@" & fi
}

# What a step printed, where it is the result: lines of LOGS/NAME.log that match.
show() { # show NAME PATTERN
    [ $list = 1 ] || ! wanted "$1" || [ ! -f "$LOGS/$1.log" ] ||
        grep -aE "$2" "$LOGS/$1.log" | cut -c1-170 | sed "s/^/    /" | tee -a "$SUMMARY"
}

with_torch() { [ $list = 1 ] || "$PYTHON" -c 'import torch' >/dev/null 2>&1; }

# torchrun's program, which need not be in PATH. A port of its own: a step may follow one that was ended.
port=29600
ranks_of_torch() { # ranks_of_torch NAME SECONDS [VARIABLE=VALUE...] PROGRAM ARGUMENT...
    local name=$1 limit=$2 settings=()
    shift 2
    while [ "${1#*=}" != "$1" ] && [ "${1#-}" = "$1" ]; do settings+=("$1") && shift; done
    port=$((port + 1))
    with_torch || { wanted "$name" && echo "$name: $PYTHON has no PyTorch: skipped" | tee -a "$SUMMARY" && return 0; }
    step "$name" "$limit" env ${settings[@]+"${settings[@]}"} "$PYTHON" -m torch.distributed.run \
        --nproc-per-node "$gpus" --master-port $port "$@"
}

build() { # build TARGET...
    [ -z "${PREBUILT:-}" ] || { echo "prebuilt" | tee -a "$SUMMARY" && return 0; }
    local archs generator=() nccl=() folder=${SOLCCL_NCCL_LIB:-}
    folder=${folder%/lib/*}
    archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | paste -sd ';')
    command -v ninja >/dev/null 2>&1 && generator=(-G Ninja)
    [ ! -f "$folder/include/nccl_device.h" ] ||
        nccl=(-DNCCL_DEVICE_INCLUDE:PATH="$folder/include" -DNCCL_LIBRARY:FILEPATH="$SOLCCL_NCCL_LIB")
    { [ -f "$BUILD/CMakeCache.txt" ] || cmake -S . -B "$BUILD" "${generator[@]}" "${nccl[@]}" -DCMAKE_BUILD_TYPE=Release \
        -DSOLCCL_CUDA=on -DSOLCCL_APPS=on -DSOLCCL_CUDA_ARCHS="$archs" -DSOLCCL_TESTS=ON \
        ${CUSOLVERMP:+-DSOLCCL_CUSOLVERMP="$CUSOLVERMP"}; } >"$LOGS/build.log" 2>&1 ||
        { tail -n 20 "$LOGS/build.log" && fail "cannot configure"; }
    if ! grep -qE '^NCCL_DEVICE_INCLUDE:PATH=/' "$BUILD/CMakeCache.txt"; then # no such target then
        for target in "$@"; do
            shift
            [ "$target" = nccl_bench ] || set -- "$@" "$target"
        done
    fi
    if ! timeout -k 5 "$(left)" cmake --build "$BUILD" -j "$JOBS" --target "$@" >>"$LOGS/build.log" 2>&1; then
        tail -n 20 "$LOGS/build.log"
        for target in "$@"; do # what can be built is worth having
            timeout -k 5 "$(left)" cmake --build "$BUILD" -j "$JOBS" --target "$target" >>"$LOGS/build.log" 2>&1 ||
                echo "build            FAILED: $target" | tee -a "$SUMMARY"
        done
    fi
    echo "built at $SECONDS s" | tee -a "$SUMMARY"
}

# PyTorch brings the NCCL that its users run; the system's may be another one.
use_torchs_nccl() {
    local path
    path=$("$PYTHON" -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null) || return 0
    [ -f "$path/lib/libnccl.so.2" ] && export SOLCCL_NCCL_LIB=$path/lib/libnccl.so.2
}

# The peers of `solccl perf` that are here.
peers() {
    local names=""
    if [ -n "${SOLCCL_NCCL_LIB:-}" ] || ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
        names=nccl,nccl-sym
    fi
    "$PYTHON" -c 'import torch.distributed._symmetric_memory' 2>/dev/null && names=${names:+$names,}torch
    [ -z "$names" ] || echo "--peer $names"
}

begin() { # begin TARGET...: the machine is looked at, and what the round needs is built
    gpus=2
    export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
    # ranks that share a GPU must not share its hardware queues (8 by default)
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    [ $list = 0 ] || return 0
    command -v nvidia-smi >/dev/null 2>&1 || fail "no nvidia-smi: is this a GPU machine?"
    gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
    [ "$gpus" -gt 0 ] || fail "no GPU here"
    mkdir -p "$OUT" "$LOGS" || fail "cannot make $OUT"
    rm -f "$LOGS"/*
    trap save EXIT
    echo "$round, $gpus x $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)," \
        "$(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" | tee "$SUMMARY"
    use_torchs_nccl
    build "$@"
    export LD_LIBRARY_PATH="$PWD/$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export PYTHONPATH="$PWD/python" SOLCCL_LIBRARY="$PWD/$BUILD/libsolccl.so" PYTHONDONTWRITEBYTECODE=1
}

finish() {
    wait
    [ $list = 0 ] || exit 0
    grep -qE '^[^ ]+ +[0-9]+ s ' "$SUMMARY" || fail "no step ran (--list names them)"
    ! grep -q FAILED "$SUMMARY" || { echo "$round: failed: $(awk '/FAILED/ {printf "%s ", $1}' "$SUMMARY")" && exit 1; }
    echo "$round: done at $SECONDS s"
}
