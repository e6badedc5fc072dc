#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# conformance.sh BUILD [all|quick]: the conformance suite on emulated GPUs (emu_conformance), as many
# programs at a time as there are cores. all: every case with 2, 3 and 4 ranks (make emu-conformance);
# quick: the matrix of functions, types and operations, the switches of algorithm, streams of messages,
# experts, with 2 ranks (make test). Prints what they print; the last line is the sum.
set -u
build=$(cd "$1" && pwd) || exit 2
level=${2:-all}
program=$build/tests/emu_conformance
[ -x "$program" ] || exit 77
seed=${SEED:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $level in # RANKS CASE, the longest first
all) jobs="4 matrix 4 sizes 4 offsets 3 sizes 3 matrix 4 - 3 offsets 2 sizes 3 - 2 matrix 2 offsets 2 -" ;;
*) jobs="2 matrix 2 switches 3 switches 2 exchange 2 group-mixed 2 moe" ;;
esac
# shellcheck disable=SC2086 # words on purpose
set -- $jobs
while [ $# -gt 0 ]; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    words=(--emu-seed "$seed" --seed "$seed" --ranks "$1")
    if [ "$2" = - ]; then # all but those above
        words+=(--but "matrix,sizes,offsets")
    else
        words+=(--case "$2/n")
    fi
    (timeout 900 "$program" "${words[@]}" >"$work/$1-$2.log" 2>&1
     echo "status $?" >>"$work/$1-$2.log") &
    shift 2
    seed=$((seed + 1))
done
wait
cat "$work"/*.log | grep -vE '^([0-9]+ passed|status|conformance of)'
awk '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5; counted = 1 }
     /^status / { if ($2 != 0 && !counted) f++; if ($2 != 0) bad = 1; counted = 0 }
     END { if (bad && !f) f = 1; printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f != 0 }' \
    "$work"/*.log
