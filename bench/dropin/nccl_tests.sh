#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nccl_tests.sh BUILD ROWS [all|quick]: nccl-tests, unmodified, with and without the drop-in: every *_perf
# program of $NCCL_TESTS, eager and in graphs, plain, registered and symmetric buffers, one process and
# two threads, two processes (if they are built with MPI), all types and operations, preloaded and by
# path. Rows of bench/results' format go to the file ROWS, one line a run to stdout; then what was
# slower with the drop-in. Fails if an element was wrong or a run failed.
#
# BUDGET=200: seconds for all; what finds no time left is named. `quick`: eager and graphs only.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?the build directory}" && pwd)
rows=${2:?the file for the rows}
level=${3:-all}
tests=${NCCL_TESTS:?the folder of all_reduce_perf}
python=${PYTHON:-python3}
budget=${BUDGET:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 left_out=0
export NCCL_NVLS_ENABLE=0

ranks=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
[ "$ranks" -ge 2 ] || { echo "nccl_tests: two GPUs are needed" && exit 77; }

# one WAY OP MODE ARGUMENT...: way is nccl, preload or path.
one() {
    local way=$1 op=$2 mode=$3 library=solccl before=() program
    shift 3
    program=$tests/${op}_perf
    if [ $SECONDS -ge "$budget" ]; then
        left_out=$((left_out + 1))
        return
    fi
    [ -x "$program" ] || { echo "$op: no ${op}_perf in NCCL_TESTS" && return; }
    case $way in
    nccl) library=nccl ;;
    preload) before=(env LD_PRELOAD="$build/libsolccl-nccl.so") ;;
    path) before=(env LD_LIBRARY_PATH="$work/path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}") ;;
    esac
    [ "$mode" != mpi ] || before=(mpirun -n 2 --allow-run-as-root --bind-to none "${before[@]}")
    timeout 40 ${before[@]+"${before[@]}"} "$program" "$@" -n 20 -w 5 -c 1 >"$work/out" 2>&1
    local status=$?
    "$python" "$here/rows.py" "$library" "$op" "$mode" "$way" "${op}_perf" "$@" <"$work/out" >"$work/rows"
    local good=$?
    cat "$work/rows" >>"$rows"
    if [ $status -ne 0 ] || [ $good -ne 0 ]; then
        failed=$((failed + 1))
        echo "FAILED  $way $op $mode $* (status $status)"
        grep -av '^#' "$work/out" | tail -n 3
    else
        echo "ok      $way $op $mode $* ($(wc -l <"$work/rows") rows)"
    fi
}
both() { one nccl "$@" && one preload "$@"; }

# The drop-in as libnccl.so.2 itself, NCCL behind it named.
mkdir "$work/path" && ln -s "$build/libsolccl-nccl.so" "$work/path/libnccl.so.2"

five=(all_reduce all_gather reduce_scatter alltoall broadcast)
others=(reduce gather scatter sendrecv hypercube)
sizes=(-b 256 -e 16M -f 16 -d bfloat16)
few=(-b 1K -e 1M -f 32 -d bfloat16)
for op in "${five[@]}"; do both "$op" graph -g 2 "${sizes[@]}" -G 20; done
for op in "${five[@]}"; do both "$op" eager -g 2 "${sizes[@]}"; done
for op in "${others[@]}"; do both "$op" eager -g 2 "${few[@]}"; done
if [ "$level" = all ]; then
    for op in "${five[@]}"; do one preload "$op" types -g 2 -b 64K -e 64K -d all -o all; done
    for op in "${five[@]}"; do both "$op" registered -g 2 "${few[@]}" -R 1; done
    for op in "${five[@]}"; do both "$op" symmetric -g 2 "${few[@]}" -R 2; done
    for op in "${five[@]}"; do one preload "$op" threads -t 2 -g 1 "${few[@]}"; done
    [ -z "${SOLCCL_NCCL_LIB:-}" ] || for op in all_reduce all_gather; do one path "$op" eager -g 2 "${few[@]}"; done
    for op in "${others[@]}"; do both "$op" graph -g 2 "${few[@]}" -G 20; done
    if ldd "$tests/all_reduce_perf" | grep -q libmpi && command -v mpirun >/dev/null 2>&1; then
        for op in "${five[@]}"; do one preload "$op" mpi -g 1 "${few[@]}"; done
    else
        echo "two processes: nccl-tests is not built with MPI: skipped"
    fi
fi
"$python" "$here/rows.py" --compare "$rows"
[ $left_out -eq 0 ] || echo "$left_out runs found no time left"
[ $failed -eq 0 ]
