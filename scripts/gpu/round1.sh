#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# round1.sh: are today's kernels right? Conformance, the GPU-only tests, and a whole model whose
# reductions are compared bit by bit with NCCL's. Options and results: common.sh.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
begin solccl solccl_command conformance gpu matrix
conformance=$BUILD/tests/conformance
quick="--backend cuda --quick"

step changing-data 60 "$BUILD/tests/gpu" --case changing-data
# Ranks beyond the GPUs share them: as threads of one process, whose kernels run at the same time.
[ "$gpus" -ge 2 ] && kind=--processes || kind=--threads
# shellcheck disable=SC2086 # words on purpose
step conformance-2 120 "$conformance" $quick --ranks 2 $kind

# Two runs over NCCL and one over solccl: who differs from whom first, and in what.
ways="--ways nccl,nccl,solccl --trace"
# shellcheck disable=SC2086
ranks_of_torch decode-trace 130 bench/apps/decode.py --model 70b $ways
show decode-trace ' against |ranks (agree|DIFFER)'

step gpu 240 "$BUILD/tests/gpu"
step matrix 120 "$BUILD/tests/matrix" --backend cuda --jobs 8 --limit 100 --write "$OUT/faults.md"
for ranks in 3 4 5 6 7 8; do
    # shellcheck disable=SC2086
    abreast conformance-$ranks 150 "$conformance" $quick --ranks $ranks --one-process
done
wait
step litmus 40 "$BUILD/bin/solccl" info --litmus
show litmus 'gpu|pair|torn|late|out of order'

# Only if something differed: without dependent launch, and without torch.compile.
if [ $list = 1 ] || grep -qE 'differs|DIFFER' "$LOGS/decode-trace.log" 2>/dev/null; then
    # shellcheck disable=SC2086
    ranks_of_torch trace-no-pdl 80 SOLCCL_CUDA_PDL=0 bench/apps/decode.py --model 70b --layers 20 $ways
    show trace-no-pdl ' against |ranks (agree|DIFFER)'
    # shellcheck disable=SC2086
    ranks_of_torch trace-eager 80 bench/apps/decode.py --model 70b --layers 20 --no-compile $ways
    show trace-eager ' against |ranks (agree|DIFFER)'
fi

sanitizer="compute-sanitizer --target-processes all --error-exitcode 9"
if [ $list = 1 ] || command -v compute-sanitizer >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    abreast memcheck 100 $sanitizer "$conformance" $quick --ranks 2 --one-process --case matrix
    # shellcheck disable=SC2086
    abreast racecheck 100 $sanitizer --tool racecheck "$conformance" $quick --ranks 2 --one-process --case offsets
fi
finish
