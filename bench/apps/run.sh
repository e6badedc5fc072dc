#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench/apps/run.sh [PROGRAM...]: build the whole programs (cg, cholesky) and run each on all GPUs of
# this machine, over NCCL and over solccl in turns. The rows replace the program's old ones in
# bench/results/h200x2-apps.jsonl.
#
# Environment: SOLCCL_BUILD (build/apps), SOLCCL_RESULTS (bench/results), SOLCCL_CUDA_ARCHS (90),
# SOLCCL_APPS_RANKS (2), SOLCCL_APPS_ROUNDS (3).
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${SOLCCL_BUILD:-build/apps}
results=${SOLCCL_RESULTS:-bench/results}
rows=$results/h200x2-apps.jsonl
ranks=${SOLCCL_APPS_RANKS:-2}
programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=(cg cholesky)

# A GPU's NVLink multicast may be shared with others: neither library uses it here.
export NCCL_NVLS_ENABLE=0

cmake -S . -B "$build" -G Ninja -DSOLCCL_CUDA=on -DSOLCCL_APPS=on \
    -DSOLCCL_CUDA_ARCHS="${SOLCCL_CUDA_ARCHS:-90}" >/dev/null
for program in "${programs[@]}"; do
    cmake --build "$build" --target "solccl_app_$program" solccl_command
done

mkdir -p "$results"
for program in "${programs[@]}"; do
    new=$results/unfinished-$program
    timeout 300 "$build/bin/solccl" run -n "$ranks" "$build/bin/app-$program" \
        "${SOLCCL_APPS_ROUNDS:-3}" | grep '^{' >"$new"
    if [ -f "$rows" ]; then
        grep -v "\"op\": \"app-$program\"" "$rows" >"$rows.kept" || true
        cat "$rows.kept" "$new" >"$rows"
        rm "$rows.kept" "$new"
    else
        mv "$new" "$rows"
    fi
    grep "\"op\": \"app-$program\"" "$rows"
done
