#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Conformance, GPU-only tests, sanitizers and perf on this machine's GPUs: what `make test-gpu` runs.
# Over an hour for all of it; scripts/gpu has the same in pieces of ten minutes.
#
#   scripts/test-gpu.sh [--quick] [--no-perf] [--only STEP[,STEP...]] [--skip STEP[,STEP...]] [--list]
#
#   --quick           fewer cases, seeds and sizes
#   --only, --skip    only these steps, or not these; nothing is written into bench/results then
#   RESULTS=bench/results  what the steps came to goes there: MACHINE-tests.txt, MACHINE.jsonl,
#                     and the fault matrix of GPU ranks, MACHINE-faults.md
#   BUILD, OUT, BUDGET, JOBS, PYTHON: as in scripts/gpu/common.sh; BUDGET is two hours here
#
# The exit status says whether all passed.
# shellcheck source-path=SCRIPTDIR source=gpu/common.sh
level="" perf=1
option() {
    case $1 in
    --quick) level=--quick ;;
    --no-perf) perf=0 ;;
    *) return 1 ;;
    esac
}
BUDGET=${BUDGET:-7200}
RESULTS=${RESULTS:-bench/results}
. "$(dirname "$0")/gpu/common.sh"

write_results() { # under the machine's name: h200x2 is its last word and how many there are
    local name
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | awk '{print tolower($NF)}' |
        tr -cd 'a-z0-9-')x$gpus
    mkdir -p "$RESULTS" || fail "cannot make $RESULTS"
    { echo "scripts/test-gpu.sh ${level:-(all cases)}" && cat "$SUMMARY"; } >"$RESULTS/$name-tests.txt"
    [ ! -s "$OUT/perf.jsonl" ] || cp "$OUT/perf.jsonl" "$RESULTS/$name.jsonl"
    [ ! -s "$OUT/faults.md" ] || cp "$OUT/faults.md" "$RESULTS/$name-faults.md"
    echo "test-gpu: written: $RESULTS/$name-tests.txt"
}

begin all
[ $list = 1 ] || rm -f "$OUT/perf.jsonl"
conformance=$BUILD/tests/conformance

step gpu 900 "$BUILD/tests/gpu"
# 110 cells, most of which wait: for CUDA's start and for a timeout of 2 s.
step matrix 120 "$BUILD/tests/matrix" --backend cuda --jobs 8 --limit 100 --write "$OUT/faults.md"
# Ranks beyond the GPUs share them: as threads of one process, whose kernels run at the same time.
[ "$gpus" -ge 2 ] && kind=--processes || kind=--threads
# shellcheck disable=SC2086 # no word if it is empty
abreast conformance-2 900 "$conformance" --backend cuda $level --ranks 2 $kind
for ranks in 3 4 5 6 7 8; do
    # shellcheck disable=SC2086
    abreast conformance-$ranks 900 "$conformance" --backend cuda $level --ranks $ranks --one-process
done
wait
if [ $list = 1 ] || command -v compute-sanitizer >/dev/null 2>&1; then
    sanitizer="compute-sanitizer --target-processes all --error-exitcode 9"
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
[ $list = 1 ] || [ -n "$only$skip" ] || write_results
finish
