#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench/run.sh: the main job of `make bench`: the five main collectives on 2 CPU ranks, verified,
# beside Open MPI and MPICH in turns; writes results and report, prints the table, in about five
# minutes. Further arguments are passed to `solccl perf` (for example -e 1M).
#
# Environment: SOLCCL_BUILD (build/release), SOLCCL_RESULTS (bench/results).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${SOLCCL_BUILD:-build/release}
results=${SOLCCL_RESULTS:-bench/results}
solccl=$build/bin/solccl

if [ ! -x "$solccl" ]; then
    scripts/install-deps.sh bench
    make all
fi

# A peer that is not there is left out, and said: the rest is worth having.
peers=
for peer in openmpi mpich; do
    if [ -x "$build/bin/solccl-perf-$peer" ] && command -v "mpirun.$peer" >/dev/null 2>&1; then
        peers=${peers:+$peers,}$peer
    else
        echo "bench: $peer is not measured: its mpirun or mpicc was not found" >&2
    fi
done

mkdir -p "$results"
# Written beside first: an interrupted run leaves the results of the one before.
new=$results/unfinished
rm -rf "$new"
mkdir -p "$new"
trap 'rm -rf "$new"' EXIT

"$solccl" perf all -g 2 -b 8 -e 16M -f 2 -d float32,bfloat16 ${peers:+--peer "$peers"} \
    --json "$new/cpu.jsonl" --report "$new/cpu.html" "$@" | tee "$new/cpu.txt"

mv "$new/cpu.jsonl" "$results/cpu.jsonl"
mv "$new/cpu.html" "$results/cpu.html"
echo
echo "rows:   $results/cpu.jsonl"
echo "report: $results/cpu.html"
