#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check every model exhaustively with Spin, and that every mutant of it is found.
# usage: proofs/run.sh [--quick] [MODEL...]    as many at a time as there are cores; the last line is
# the sum, "N passed, N failed".
#   --quick   without two models of three ranks that take a minute (make test)
#   MODEL     only those of this name, such as gpu_lane
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=${TMPDIR:-/tmp}/solccl-proofs.$$
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
quick=no
[ "${1:-}" != --quick ] || { quick=yes && shift; }
models=("$@")
count=0

# try NAME EXPECT MODEL FOLDER CPP-FLAGS...: one model, in a process of its own; a line in FOLDER/said.
try() {
    local name=$1 expect=$2 model=$3 dir=$4 level errors states complete=yes verdict=wrong why
    shift 4
    [ "$expect" = holds ] && level=-O2 || level=-O0 # (a mutant's search is short)
    (cd "$dir" && spin "$@" -a "$here/$model" >spin.log 2>&1 &&
        cc $level -w -DSAFETY -DCOLLAPSE -DMEMLIM=6000 -o pan pan.c >cc.log 2>&1 &&
        timeout "${SOLCCL_PROOF_SECONDS:-300}" ./pan -m2000000 >pan.log 2>&1)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/pan.log" 2>/dev/null)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/pan.log" 2>/dev/null)
    grep -q 'Search not completed\|max search depth too small\|reached -DMEMLIM' "$dir/pan.log" \
        2>/dev/null && complete=no
    case "$expect:${errors:-none}:$complete" in
    holds:0:yes | fails:[1-9]*) verdict=ok ;;
    esac
    why=$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$dir/pan.log" 2>/dev/null)
    {
        printf '%-52s expected %s: %s (%s states) %s\n' "$name" "$expect" "$verdict" \
            "${states:-?}" "$why"
        [ $verdict = ok ] || tail -n 5 "$dir"/*.log
    } >"$dir/said"
    rm -f "$dir"/pan*
    echo $verdict >"$dir/verdict"
}

# check NAME EXPECT(holds|fails) MODEL CPP-FLAGS...
check() {
    local dir
    [ ${#models[@]} -eq 0 ] || printf '%s.pml\n' "${models[@]}" | grep -qxF -- "$3" || return 0
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    count=$((count + 1))
    dir=$work/$(printf '%03d' $count)
    mkdir -p "$dir"
    try "$1" "$2" "$3" "$dir" "${@:4}" &
}

command -v spin >/dev/null || { echo "proofs need spin (Debian: apt-get install spin)" >&2; exit 77; }

check "gpu_epoch, 3 ranks" holds gpu_epoch.pml -DN=3 -DNO_ESCAPE # (the longest first)
check "gpu_session, TAG, 3 ranks" holds gpu_session.pml -DN=3
check "gpu_epoch, 2 ranks" holds gpu_epoch.pml -DN=2
for mutant in M_ONE_PARITY M_NO_RESET M_NO_WAIT M_NO_TOKEN M_ESCAPE_TAG M_ABORT_STUCK; do
    check "gpu_epoch, 2 ranks, $mutant" fails gpu_epoch.pml -DN=2 -D$mutant
done
check "gpu_session, TAG" holds gpu_session.pml -DN=2
check "gpu_session, WORD" holds gpu_session.pml -DN=2 -DWORD
for mutant in M_ONE_PARITY M_NO_R M_ANY_TAG M_ABORT_STUCK; do
    check "gpu_session, TAG, $mutant" fails gpu_session.pml -DN=2 -D$mutant
done
for mutant in M_ONE_PARITY M_NO_R M_NO_FENCE M_NO_RESET M_ABORT_STUCK; do
    check "gpu_session, WORD, $mutant" fails gpu_session.pml -DN=2 -DWORD -D$mutant
done
for seed in 0 7; do # 7: the numbers wrap after one chunk
    check "gpu_lane, seed $seed" holds gpu_lane.pml -DSEED=$seed
done
for mutant in M_NO_FENCE M_CREDIT_EARLY M_ROOM M_UNSIGNED M_NO_RESET M_HALF M_ABORT_STUCK; do
    check "gpu_lane, $mutant" fails gpu_lane.pml -DSEED=7 -D$mutant
done
check "gpu_counter, 2 ranks" holds gpu_counter.pml -DN=2 -DSEED=7
[ $quick = yes ] || check "gpu_counter, 3 ranks" holds gpu_counter.pml -DN=3
for mutant in M_NO_FENCE M_SIGNAL_FIRST M_ONE_LESS M_NO_DONE M_UNSIGNED M_ABORT_STUCK; do
    check "gpu_counter, $mutant" fails gpu_counter.pml -DN=2 -DSEED=7 -D$mutant
done
check "gpu_counter, 3 ranks, M_STORE" fails gpu_counter.pml -DN=3 -DM_STORE
check "gpu_barrier, 2 ranks" holds gpu_barrier.pml -DN=2 -DSEED=7
[ $quick = yes ] || check "gpu_barrier, 3 ranks" holds gpu_barrier.pml -DN=3
for mutant in M_NO_RELEASE M_EQUAL M_UNSIGNED M_ONE_BARRIER M_WRONG_SLOT M_ABORT_STUCK; do
    check "gpu_barrier, $mutant" fails gpu_barrier.pml -DN=2 -DSEED=7 -D$mutant
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

wait
[ $count -gt 0 ] || { echo "there is no model ${models[*]}" >&2; exit 2; }
cat "$work"/*/said
failed=$(grep -cv '^ok$' <(cat "$work"/*/verdict))
echo "$((count - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
