#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Conformance, GPU-only tests, sanitizers and perf on this machine's GPUs: what `make test-gpu` runs.
#
#   scripts/test-gpu.sh [--quick] [--no-perf] [--only STEP[,STEP...]] [--list]
#
#   --quick           fewer cases, seeds and sizes
#   --only STEPS      only these steps; nothing is written into bench/results then
#   BUILD=build/gpu   the build directory; if it has the programs already they are used as they are
#   OUT=build/gpu/log where the logs go, one a step, and perf's rows
#   RESULTS=bench/results  what the steps came to goes there: MACHINE-tests.txt, MACHINE.jsonl
#   JOBS=N            compile jobs
#   ABREAST=N         conformance runs at once (3): their time is the start of CUDA, not the GPU's
#
# Every step has a time limit; one that fails does not stop the others. The exit status says
# whether all passed. NVLink multicast is left off in every library that is run beside.
set -u
cd "$(dirname "$0")/.." || exit 1

BUILD=${BUILD:-build/gpu}
OUT=${OUT:-$BUILD/log}
RESULTS=${RESULTS:-bench/results}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
ABREAST=${ABREAST:-3}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# ranks that share a GPU must not share its hardware queues (8 by default)
export CUDA_DEVICE_MAX_CONNECTIONS=32

level="" perf=1 only="" list=0
while [ $# -gt 0 ]; do
    case $1 in
    --quick) level=--quick ;;
    --no-perf) perf=0 ;;
    --list) list=1 ;;
    --only) only=,${2:?--only needs steps}, && shift ;;
    *) sed -n '4,18s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done

fail() {
    echo "test-gpu: $*" >&2
    exit 1
}

build() {
    local archs generator=()
    [ ! -x "$BUILD/tests/gpu" ] || [ ! -x "$BUILD/tests/conformance" ] || return 0
    archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
        paste -sd ';')
    command -v ninja >/dev/null 2>&1 && generator=(-G Ninja)
    cmake -S . -B "$BUILD" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DSOLCCL_CUDA=on \
        -DSOLCCL_CUDA_ARCHS="$archs" -DSOLCCL_TESTS=ON || fail "cannot configure"
    cmake --build "$BUILD" -j "$JOBS" || fail "cannot build"
}

# "2 passed, 0 failed" of our programs, or the log's last line.
outcome() {
    grep -aE '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1 | grep . || tail -n 1 "$1"
}

# step NAME SECONDS COMMAND...: its output into OUT/NAME.log, its verdict into OUT/NAME.verdict.
step() {
    local name=$1 limit=$2 begin status word
    shift 2
    if [ -n "$only" ] && [ "${only#*",$name,"}" = "$only" ]; then
        return 0
    fi
    if [ $list = 1 ]; then
        printf '%-16s %s\n' "$name" "$*"
        return 0
    fi
    begin=$(date +%s)
    timeout -k 10 "$limit" "$@" >"$OUT/$name.log" 2>&1
    status=$?
    case $status in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137) word="FAILED (over $limit s)" ;;
    *) word="FAILED ($status)" ;;
    esac
    printf '%-16s %4d s  %-10s %s\n' "$name" $(($(date +%s) - begin)) "$word" \
        "$(outcome "$OUT/$name.log")" | tee "$OUT/$name.verdict"
    case $word in FAILED*) grep -av '^ok ' "$OUT/$name.log" | tail -n 25 | sed 's/^/    /' ;; esac
}

# The same beside others, at most ABREAST at once.
abreast() {
    [ $list = 1 ] || while [ "$(jobs -rp | wc -l)" -ge "$ABREAST" ]; do wait -n; done
    if [ $list = 1 ]; then step "$@"; else step "$@" & fi
}

# PyTorch brings the NCCL that its users run; the system's may be another one.
use_torchs_nccl() {
    local path
    path=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null) || return 0
    [ -f "$path/lib/libnccl.so.2" ] && export SOLCCL_NCCL_LIB=$path/lib/libnccl.so.2
}

peers() {
    local names=""
    if [ -n "${SOLCCL_NCCL_LIB:-}" ] || ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
        names=nccl,nccl-sym
    fi
    python3 -c 'import torch.distributed._symmetric_memory' 2>/dev/null && names=${names:+$names,}torch
    [ -z "$names" ] || echo "--peer $names"
}

# h200x2: the name's last word and how many there are.
machine() {
    nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | awk '{print tolower($NF)}' |
        tr -cd 'a-z0-9-'
    echo "x$gpus"
}

write_results() {
    local name
    name=$(machine)
    mkdir -p "$RESULTS" || fail "cannot make $RESULTS"
    {
        echo "scripts/test-gpu.sh ${level:-(all cases)} on $gpus x $(nvidia-smi \
            --query-gpu=name,driver_version --format=csv,noheader | head -n 1)," \
            "$(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
        cat "$summary"
    } >"$RESULTS/$name-tests.txt"
    [ ! -s "$OUT/perf.jsonl" ] || cp "$OUT/perf.jsonl" "$RESULTS/$name.jsonl"
    echo "test-gpu: written: $RESULTS/$name-tests.txt"
}

if [ $list = 0 ]; then
    command -v nvidia-smi >/dev/null 2>&1 || fail "no nvidia-smi: is this a GPU machine?"
    gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
    [ "$gpus" -gt 0 ] || fail "no GPU here"
    build
    mkdir -p "$OUT" || fail "cannot make $OUT"
    rm -f "$OUT"/*.verdict "$OUT/perf.jsonl"
    export LD_LIBRARY_PATH="$PWD/$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
summary=$OUT/summary.txt
conformance=$BUILD/tests/conformance
sanitizer="compute-sanitizer --target-processes all --error-exitcode 9"
gpus=${gpus:-2}
use_torchs_nccl

step gpu 900 "$BUILD/tests/gpu"
# Ranks beyond the GPUs share them: as threads of one process, whose kernels run at the same time.
[ "$gpus" -ge 2 ] && kind=--processes || kind=--threads
# shellcheck disable=SC2086 # no word if it is empty
abreast conformance-2 900 "$conformance" --backend cuda $level --ranks 2 $kind
for ranks in 3 4 5 6 7 8; do
    # shellcheck disable=SC2086
    abreast conformance-$ranks 900 "$conformance" --backend cuda $level --ranks $ranks --one-process
done
wait
if command -v compute-sanitizer >/dev/null 2>&1 || [ $list = 1 ]; then
    # shellcheck disable=SC2086 # words on purpose
    abreast memcheck 600 $sanitizer "$conformance" --backend cuda --quick --ranks 2 --one-process \
        --case matrix
    # shellcheck disable=SC2086
    abreast racecheck 600 $sanitizer --tool racecheck "$conformance" --backend cuda --quick \
        --ranks 2 --one-process --case offsets
    wait
fi
if [ $perf = 1 ]; then
    sizes=
    [ -z "$level" ] || sizes="-b 256 -e 1M -f 16"
    # shellcheck disable=SC2046,SC2086
    step perf 900 "$BUILD/bin/solccl" perf all --device cuda --mode graph,graph-pdl,eager \
        -d bfloat16,float32 -g "$gpus" $sizes $(peers) --json "$OUT/perf.jsonl"
fi
[ $list = 0 ] || exit 0

cat "$OUT"/*.verdict >"$summary" 2>/dev/null || fail "there is no step of that name (--list)"
[ -n "$only" ] || write_results
if grep -q FAILED "$summary"; then
    echo "test-gpu: failed: $(awk '/FAILED/ {printf "%s ", $1}' "$summary")(logs in $OUT)"
    exit 1
fi
echo "test-gpu: all passed (logs in $OUT)"
