#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Check every model exhaustively with Spin, and that every mutant of it is found.
# usage: proofs/run.sh [model...]    prints "N passed, N failed"
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=${TMPDIR:-/tmp}/solccl-proofs.$$
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# check NAME EXPECT(holds|fails) MODEL CPP-FLAGS...
check() {
    name=$1 expect=$2 model=$3
    shift 3
    dir=$work/$(echo "$name" | tr -c 'A-Za-z0-9\n' _)
    mkdir -p "$dir"
    (cd "$dir" && spin "$@" -a "$here/$model" >spin.log 2>&1 &&
        cc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=6000 -o pan pan.c >cc.log 2>&1 &&
        nice timeout "${SOLCCL_PROOF_SECONDS:-300}" ./pan -m2000000 >pan.log 2>&1)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/pan.log" 2>/dev/null)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/pan.log" 2>/dev/null)
    complete=yes
    grep -q 'Search not completed\|max search depth too small\|reached -DMEMLIM' "$dir/pan.log" 2>/dev/null && complete=no
    verdict=wrong
    case "$expect:${errors:-none}:$complete" in
    holds:0:yes) verdict=ok ;;
    fails:[1-9]*) verdict=ok ;;
    esac
    why=$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$dir/pan.log" 2>/dev/null)
    printf '%-52s expected %s: %s (%s states) %s\n' "$name" "$expect" "$verdict" "${states:-?}" "$why"
    if [ $verdict = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 5 "$dir"/*.log
    fi
}

command -v spin >/dev/null || { echo "proofs need spin (Debian: apt-get install spin)" >&2; exit 77; }

check "gpu_epoch, 2 ranks" holds gpu_epoch.pml -DN=2
check "gpu_epoch, 3 ranks" holds gpu_epoch.pml -DN=3 -DNO_ESCAPE
for mutant in M_ONE_PARITY M_NO_RESET M_NO_WAIT M_NO_TOKEN M_ESCAPE_TAG M_ABORT_STUCK; do
    check "gpu_epoch, 2 ranks, $mutant" fails gpu_epoch.pml -DN=2 -D$mutant
done
check "gpu_session, TAG" holds gpu_session.pml -DN=2
check "gpu_session, WORD" holds gpu_session.pml -DN=2 -DWORD
check "gpu_session, TAG, 3 ranks" holds gpu_session.pml -DN=3
for mutant in M_ONE_PARITY M_NO_R M_ANY_TAG M_ABORT_STUCK; do
    check "gpu_session, TAG, $mutant" fails gpu_session.pml -DN=2 -D$mutant
done
for mutant in M_ONE_PARITY M_NO_R M_NO_FENCE M_NO_RESET M_ABORT_STUCK; do
    check "gpu_session, WORD, $mutant" fails gpu_session.pml -DN=2 -DWORD -D$mutant
done
for seed in 0 3; do # 3: the numbers wrap after one line
    check "cpu_line, seed $seed" holds cpu_line.pml -DSEED=$seed
done
for mutant in M_TAG_FIRST M_ACK_EARLY M_ROOM M_NO_SIG M_SEQ_IS_RING M_ABORT_STUCK; do
    check "cpu_line, $mutant" fails cpu_line.pml -D$mutant
done
for seed in 0 3; do
    check "cpu_cell, seed $seed" holds cpu_cell.pml -DSEED=$seed
done
for mutant in M_NO_LINE M_NO_AGAIN M_ROOM M_HEARD_EARLY M_TAG_FIRST M_NO_SIG M_ABORT_STUCK; do
    check "cpu_cell, $mutant" fails cpu_cell.pml -D$mutant
done
check "cpu_staging" holds cpu_staging.pml
for mutant in M_NO_WAIT M_ONE_READER M_DONE_EARLY M_HEARD_EARLY M_WAIT_ALL M_ABORT_STUCK; do
    check "cpu_staging, $mutant" fails cpu_staging.pml -D$mutant
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
