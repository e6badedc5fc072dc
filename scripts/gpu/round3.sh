#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# round3.sh: what has run in the emulator only ("To run on the next GPU" in bench/NOTES.md): is it
# right, and then how fast; nccl-tests with and without the drop-in; whole programs. Options and results:
# common.sh.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# (nccl_bench needs NCCL's headers, and is left out where they are not.)
begin solccl solccl_command conformance gpu solccl_nccl solccl_nccl_path transfer_perf_cuda solccl_moe_perf \
    quantized_perf solccl_norm_perf solccl_halves_perf solccl_app_cg solccl_app_cholesky nccl_bench
solccl=$BUILD/bin/solccl
[ $list = 1 ] || rm -f "$OUT"/*.jsonl

# Right? One case after the other: they look at the clock. (--case takes part of a name.)
for case in sleep transfer moe quantized linear vocab halves; do
    step gpu-$case 60 "$BUILD/tests/gpu" --case $case
done
for case in sleep transfer moe quantized linear vocab norm halves; do
    abreast conf-$case 60 "$BUILD/tests/conformance" --backend cuda --quick --ranks 2 --one-process --case $case
done
wait

# How fast?
step transfer-perf 50 "$solccl" run -n "$gpus" "$BUILD/bin/transfer-perf-cuda"
show transfer-perf .
step transfer-both 40 "$solccl" run -n "$gpus" "$BUILD/bin/transfer-perf-cuda" --both
show transfer-both .
step moe-perf 40 "$solccl" run -n "$gpus" "$BUILD/bin/moe-perf" --backend cuda
show moe-perf .
step halves-perf 40 "$solccl" run -n "$gpus" "$BUILD/bin/halves-perf" --backend cuda
show halves-perf .
step quantized-perf 40 "$solccl" run -n "$gpus" "$BUILD/bin/quantized-perf"
show quantized-perf .
step norm-perf 60 "$solccl" run -n "$gpus" "$BUILD/bin/norm-perf"
show norm-perf 'two-shot|vocab|linear| fused '
if [ $list = 1 ] || [ -x "$BUILD/bench/nccl_bench" ]; then
    step nccl-device 60 "$solccl" run -n "$gpus" "$BUILD/bench/nccl_bench"
    show nccl-device '^{'
fi

if [ $list = 1 ] || [ -n "$NCCL_TESTS" ]; then
    step nccl-tests 215 env BUDGET=200 NCCL_TESTS="$NCCL_TESTS" bench/dropin/nccl_tests.sh "$BUILD" "$OUT/nccl-tests.jsonl"
    show nccl-tests '^FAILED|at least|left'
else
    echo "nccl-tests: NCCL_TESTS names no folder: skipped" | tee -a "$SUMMARY"
fi

# Whole programs. Experts: 30B of which a token uses 3B, and 8 x 7B.
moe="bench/apps/decode.py --batch 1,8 --ways nccl,solccl,fused,local"
# shellcheck disable=SC2086 # words on purpose
ranks_of_torch decode-a3b 60 $moe --model 30b-a3b
# shellcheck disable=SC2086
ranks_of_torch decode-8x7b 60 $moe --model 8x7b
dropin=$PWD/$BUILD/libsolccl-nccl.so
tokens=$BUILD/transformers.json
ranks_of_torch hf-nccl 60 bench/apps/transformers_tp.py --keep "$tokens"
ranks_of_torch hf-dropin 60 LD_PRELOAD="$dropin" bench/apps/transformers_tp.py --label dropin --compare "$tokens"
ranks_of_torch context 60 bench/apps/context.py --model 70b --context 32768 --ways nccl,solccl,local
for app in cg cholesky; do
    step app-$app 45 "$solccl" run -n "$gpus" "$BUILD/bin/app-$app" 3
done
if [ $list = 1 ] || [ -n "${CUSOLVERMP:-}" ]; then
    [ $list = 1 ] || build solccl_app_cusolvermp
    step app-cusolvermp 90 "$BUILD/bin/app-cusolvermp" --dropin "$dropin" --ranks "$gpus" --rounds 2
fi
[ $list = 1 ] || grep -ah '^{' "$LOGS"/{decode,hf,context,app}-*.log "$LOGS/context.log" >"$OUT/apps.jsonl" 2>/dev/null
finish
