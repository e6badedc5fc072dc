#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench/apps/run.sh [PROGRAM...]: whole programs, over solccl and over its peers in turns. The rows
# replace the program's old ones in bench/results.
#
#   cg, cholesky             on all GPUs, against NCCL; into h200x2-apps.jsonl
#   cusolvermp               cuSOLVERMp's Cholesky, unmodified, with and without the drop-in; its folder
#                            (include, lib) in CUSOLVERMP; into the same file
#   decode-cpu, context-cpu  on CPU ranks, against Gloo and Open MPI; into cpu-apps.jsonl. They need a
#                            Python with torch and mpi4py: PYTHON=...
#
# Environment: SOLCCL_BUILD (build/apps), SOLCCL_RESULTS (bench/results), SOLCCL_CUDA_ARCHS (90),
# SOLCCL_APPS_RANKS (2), SOLCCL_APPS_ROUNDS (3).
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${SOLCCL_BUILD:-build/apps}
results=${SOLCCL_RESULTS:-bench/results}
ranks=${SOLCCL_APPS_RANKS:-2}
python=${PYTHON:-python3}
programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=(cg cholesky)

# A GPU's NVLink multicast may be shared with others: neither library uses it here.
export NCCL_NVLS_ENABLE=0

# keep FILE OP: what comes from stdin replaces the rows of OP in FILE.
keep() {
    local new
    new=$(grep '^{') || { echo "$2: no rows" >&2 && return 1; }
    [ ! -f "$1" ] || new=$(grep -v "\"op\": \"$2\"" "$1" || true)${new:+$'\n'$new}
    printf '%s\n' "$new" | sed '/^$/d' >"$1"
    grep "\"op\": \"$2\"" "$1"
}

build_for_gpus() { # build_for_gpus TARGET...
    cmake -S . -B "$build" -G Ninja -DSOLCCL_CUDA=on -DSOLCCL_APPS=on \
        -DSOLCCL_CUDA_ARCHS="${SOLCCL_CUDA_ARCHS:-90}" \
        ${CUSOLVERMP:+-DSOLCCL_CUSOLVERMP="$CUSOLVERMP"} >/dev/null
    cmake --build "$build" --target "$@" >&2
}

on_gpus() { # on_gpus PROGRAM
    build_for_gpus "solccl_app_$1" solccl_command
    timeout 300 "$build/bin/solccl" run -n "$ranks" "$build/bin/app-$1" "${SOLCCL_APPS_ROUNDS:-3}" |
        keep "$results/h200x2-apps.jsonl" "app-$1"
}

# One core a rank, for each way: threads of a rank's own would only take them from each other.
on_cpus() { # on_cpus OP ARGUMENT...
    local op=$1 as_root=()
    shift
    cmake -S . -B "$build-cpu" -G Ninja -DSOLCCL_CUDA=off -DCMAKE_BUILD_TYPE=Release >/dev/null
    cmake --build "$build-cpu" --target solccl >&2
    [ "$(id -u)" != 0 ] || as_root=(--allow-run-as-root)
    for batch in 1 8; do
        OMP_NUM_THREADS=1 PYTHONPATH=$PWD/python SOLCCL_LIBRARY=$PWD/$build-cpu/libsolccl.so \
            timeout 300 mpirun "${as_root[@]}" --bind-to none -n "$ranks" \
            "$python" "bench/apps/$op.py" --device cpu --dtype float32 --batch $batch "$@"
    done | keep "$results/cpu-apps.jsonl" "app-$op"
}

mkdir -p "$results"
for program in "${programs[@]}"; do
    case $program in
    cusolvermp)
        : "${CUSOLVERMP:?the folder of include and lib}"
        build_for_gpus solccl_app_cusolvermp solccl_nccl
        timeout 600 "$build/bin/app-cusolvermp" --dropin "$build/libsolccl-nccl.so" --ranks "$ranks" \
            --rounds "${SOLCCL_APPS_ROUNDS:-3}" | keep "$results/h200x2-apps.jsonl" app-cusolvermp
        ;;
    decode-cpu) on_cpus decode --model small --context 256 --ways gloo,mpi,solccl,fused,local ;;
    context-cpu) on_cpus context --model small --context 4096 --ways gloo,mpi,solccl,local ;;
    *) on_gpus "$program" ;;
    esac
done
