#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Conformance, GPU-only tests and perf on this machine's GPUs: what `make test-gpu` runs.
#
#   scripts/test-gpu.sh [--quick] [--no-perf] [--only STEP]
#
#   BUILD=build/gpu   the build directory; if it has the programs already they are used as they are
#   OUT=build/gpu/log where the logs go, one a step
#   JOBS=N            compile jobs
#
# Every step has a time limit; one that fails does not stop the others. The exit status says
# whether all passed. NVLink multicast is left off in every library that is run beside.
set -u
cd "$(dirname "$0")/.." || exit 1

BUILD=${BUILD:-build/gpu}
OUT=${OUT:-$BUILD/log}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# ranks that share a GPU must not share its hardware queues (8 by default)
export CUDA_DEVICE_MAX_CONNECTIONS=32

quick=0
perf=1
only=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --no-perf) perf=0 ;;
    --only) only=${2:?--only needs a step}; shift ;;
    *) sed -n '4,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done

fail() {
    echo "test-gpu: $*" >&2
    exit 1
}

command -v nvidia-smi >/dev/null 2>&1 || fail "no nvidia-smi: is this a GPU machine?"
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
[ "$gpus" -gt 0 ] || fail "no GPU here"

if [ ! -x "$BUILD/tests/gpu" ] || [ ! -x "$BUILD/tests/conformance" ]; then
    archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
        paste -sd ';')
    generator=
    command -v ninja >/dev/null 2>&1 && generator="-G Ninja"
    # shellcheck disable=SC2086
    cmake -S . -B "$BUILD" $generator -DCMAKE_BUILD_TYPE=Release -DSOLCCL_CUDA=on \
        -DSOLCCL_CUDA_ARCHS="$archs" -DSOLCCL_TESTS=ON || fail "cannot configure"
    cmake --build "$BUILD" -j "$JOBS" || fail "cannot build"
fi
mkdir -p "$OUT" || fail "cannot make $OUT"
export LD_LIBRARY_PATH="$PWD/$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

failed=
summary=$OUT/summary.txt
: >"$summary"

# step NAME SECONDS COMMAND...: its output into OUT/NAME.log
step() {
    name=$1 limit=$2
    shift 2
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    begin=$(date +%s)
    timeout -k 10 "$limit" "$@" >"$OUT/$name.log" 2>&1
    status=$?
    took=$(($(date +%s) - begin))
    case $status in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137) word="FAILED (over $limit s)" ;;
    *) word="FAILED ($status)" ;;
    esac
    case $word in FAILED*)
        failed="$failed $name"
        grep -v '^ok ' "$OUT/$name.log" | tail -n 25
        ;;
    esac
    printf '%-24s %4d s  %s  %s\n' "$name" "$took" "$word" "$(tail -n 1 "$OUT/$name.log")" |
        tee -a "$summary"
}

conformance=$BUILD/tests/conformance
level=
[ $quick = 1 ] && level=--quick

step gpu 900 "$BUILD/tests/gpu"
# Ranks beyond the GPUs share them: as threads of one process, whose kernels run at the same time.
[ "$gpus" -ge 2 ] && kind=--processes || kind=--threads
# shellcheck disable=SC2086
step conformance-2 900 "$conformance" --backend cuda $level --ranks 2 $kind
for ranks in 3 4 5 6 7 8; do
    step conformance-$ranks 900 "$conformance" --backend cuda --quick --ranks $ranks --threads
done
if command -v compute-sanitizer >/dev/null 2>&1; then
    step memcheck 600 compute-sanitizer --target-processes all --error-exitcode 9 \
        "$conformance" --backend cuda --quick --ranks 2 --threads --case matrix
    step racecheck 600 compute-sanitizer --tool racecheck --target-processes all \
        --error-exitcode 9 "$conformance" --backend cuda --quick --ranks 2 --threads --case roots
fi
if [ $perf = 1 ] && [ -x "$BUILD/bin/solccl" ]; then
    step perf 900 "$BUILD/bin/solccl" perf all --device cuda --mode graph,graph-pdl,eager \
        -d bfloat16,float32 -g "$gpus" --json "$OUT/perf.jsonl"
    [ -z "$failed" ] && [ -f "$OUT/perf.log" ] && cat "$OUT/perf.log"
fi

if [ -n "$failed" ]; then
    echo "test-gpu: failed:$failed (logs in $OUT)"
    exit 1
fi
echo "test-gpu: all passed (logs in $OUT)"
