#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# round2.sh: figures of what bench/results has rows of already: the five collectives beside their
# peers, the device API, the fused norm, torch.distributed, a decoder. Options and results: common.sh.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
begin solccl solccl_command solccl_nccl solccl_nccl_path device_bench solccl_norm_perf
solccl=$BUILD/bin/solccl
dropin=$PWD/$BUILD/libsolccl-nccl.so
perf="perf all --device cuda -g $gpus --append --json $OUT/perf.jsonl"
[ $list = 1 ] || rm -f "$OUT/perf.jsonl" "$OUT/dropin.jsonl" "$OUT/apps.jsonl"

# shellcheck disable=SC2086 # words on purpose, here and below
step perf-bf16 150 "$solccl" $perf --mode graph,graph-pdl -d bfloat16 -b 8 -e 16M -f 2 --rounds 3 \
    --round-ms 4 --peer nccl,nccl-sym
# shellcheck disable=SC2086
step perf-large 60 "$solccl" $perf --mode graph,graph-pdl -d bfloat16 -b 64M -e 1G -f 4 -c 0 --rounds 2 \
    --round-ms 8 --peer nccl
# shellcheck disable=SC2086
step perf-fp32 70 "$solccl" $perf --mode graph,graph-pdl -d float32 -b 16 -e 16M -f 4 --rounds 3 \
    --round-ms 4 --peer nccl,nccl-sym

# A row a library of what a whole token takes.
ranks_of_torch decode-70b 120 bench/apps/decode.py --model 70b --batch 1,8,64 --ways nccl,solccl,fused,local
[ $list = 1 ] || grep -ah '^{' "$LOGS/decode-70b.log" >>"$OUT/apps.jsonl" 2>/dev/null

graph="bench/dropin/torch_graph.py --json $OUT/dropin.jsonl"
model=$BUILD/torch_graph.nccl.json
# shellcheck disable=SC2086
ranks_of_torch torch-nccl 45 $graph --way nccl --model "$model"
# shellcheck disable=SC2086
ranks_of_torch torch-dropin 45 LD_PRELOAD="$dropin" $graph --way dropin --compare "$model"
# shellcheck disable=SC2086
ranks_of_torch torch-backend 45 $graph --way backend --compare "$model"
for way in nccl dropin backend; do show torch-$way ' us|differ'; done
ranks_of_torch host-time 40 bench/dropin/host_time.py --device cuda
show host-time '^ +[0-9.]+  '

step norm-perf 60 "$solccl" run -n "$gpus" "$BUILD/bin/norm-perf"
step device-bench 40 "$solccl" run -n "$gpus" "$BUILD/bench/device_bench"
show device-bench .
rendezvous=$BUILD/rendezvous
[ $list = 1 ] || { rm -rf "$rendezvous" && mkdir -p "$rendezvous"; }
if with_torch; then
    step fast-cuda 60 "$PYTHON" tests/python/fast_cuda.py
    step torch-ranks 60 "$solccl" run -n "$gpus" "$PYTHON" -W ignore tests/python/torch_ranks.py "$rendezvous" cuda
fi
# shellcheck disable=SC2086
step perf-eager 45 "$solccl" $perf --mode eager -d bfloat16 -b 16 -e 16M -f 4 --rounds 2 --round-ms 4 --peer nccl
# shellcheck disable=SC2086
step perf-torch 45 "$solccl" ${perf/ all / all_reduce } --mode graph -d bfloat16 -b 16 -e 16M -f 4 --rounds 2 \
    --round-ms 4 --peer torch
finish
