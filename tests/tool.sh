#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tool.sh BUILD: the solccl command as a person uses it: run, perf, info; good and bad command
# lines; what it writes. Small sizes: nothing here is a measurement.
set -u
cd "$(dirname "$0")/.."
solccl=$(cd "$1" && pwd)/bin/solccl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
verdict() { # verdict NAME CODE
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok       $1"
    else
        failed=$((failed + 1))
        echo "FAILED   $1"
        tail -n 15 "$work/out" "$work/err" 2>/dev/null
    fi
}
# succeeds NAME COMMAND...; fails NAME STATUS TEXT COMMAND...: bounded, output in $work.
succeeds() {
    timeout 60 "${@:2}" >"$work/out" 2>"$work/err"
    verdict "$1" $?
}
fails() {
    timeout 60 "${@:4}" >"$work/out" 2>"$work/err"
    local code=$?
    [ $code -eq "$2" ] && cat "$work/out" "$work/err" | grep -qF -- "$3"
    verdict "$1" $?
}
has() { # has NAME FILE PATTERN
    grep -qE -- "$3" "$2"
    verdict "$1" $?
}

# ---- run
succeeds "run gives every rank its place" "$solccl" run -n 3 --label -- \
    bash -c 'echo "$SOLCCL_RANK of $SOLCCL_SIZE"'
has "run labels the output" "$work/out" '^\[2\] 2 of 3$'
fails "run passes a rank's status on" 7 "" "$solccl" run -n 3 -- \
    bash -c '[ "$SOLCCL_RANK" = 1 ] && exit 7; sleep 20'
fails "run ends the others when one is killed" 137 "" "$solccl" run -n 2 -- \
    bash -c '[ "$SOLCCL_RANK" = 1 ] && kill -9 $$; sleep 20'
fails "run keeps its time limit" 124 "" "$solccl" run -n 2 -t 1 -- sleep 20
fails "run says what it cannot start" 127 "no-such-program" "$solccl" run -n 2 ./no-such-program
fails "run wants a command" 2 "" "$solccl" run -n 2
fails "run wants a sensible number" 2 "zero" "$solccl" run -n zero true
fails "an unknown command" 2 "dance" "$solccl" dance
succeeds "help" "$solccl" --help
succeeds "version" "$solccl" --version

# ---- info
succeeds "info" "$solccl" info
has "info names the backend" "$work/out" '^backend cpu: usable'
succeeds "info explains one operation" "$solccl" info -x broadcast -g 4

# ---- perf
small=(-b 8 -e 4K -f 8 --rounds 2 --round-ms 2 --no-bound)
succeeds "perf all" "$solccl" perf all -g 2 "${small[@]}" --in-place both -d float32,bfloat16 \
    --json "$work/rows.jsonl" --csv "$work/rows.csv" --report "$work/report.html"
# Every row is JSON with the keys of the results format; nothing is wrong; all five are there.
timeout 60 python3 - "$work/rows.jsonl" >"$work/out" 2>"$work/err" <<'PY'
import json, sys
keys = ("run date machine device driver versions command library ranks processes op dtype redop "
        "in_place bytes mode us_min us_p50 us_p99 wrong protocol").split()
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    missing = [key for key in keys if key not in row]
    assert not missing, missing
    assert row["wrong"] == 0 and row["library"] == "solccl" and row["ranks"] == 2, row
    assert 0 < row["us_min"] <= row["us_p50"] <= row["us_p99"], row
ops = {row["op"] for row in rows}
assert ops == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}, ops
PY
verdict "perf writes rows of the results format, none wrong" $?
has "perf writes CSV" "$work/rows.csv" 'all_reduce'
has "perf writes a page" "$work/report.html" '</html>'
! grep -qE 'src="?https?:|href="?https?:' "$work/report.html"
verdict "the page refers to nothing outside" $?
for op in reduce gather scatter sendrecv barrier; do
    succeeds "perf $op" "$solccl" perf $op -g 3 "${small[@]}"
done
succeeds "perf under a launcher" "$solccl" run -n 2 -- "$solccl" perf all_reduce "${small[@]}"
succeeds "perf in symmetric memory, single calls" "$solccl" perf all_reduce -g 2 -R 2 -z 1 \
    "${small[@]}"
fails "perf names a bad size" 2 "12X" "$solccl" perf all_reduce -b 12X
fails "perf names a bad type" 2 "float99" "$solccl" perf all_reduce -d float99
fails "perf names an unknown operation" 2 "all_dance" "$solccl" perf all_dance
for peer in openmpi mpich; do
    if command -v "mpirun.$peer" >/dev/null 2>&1 && [ -x "$(dirname "$solccl")/solccl-perf-$peer" ]; then
        succeeds "perf beside $peer" "$solccl" perf all_reduce -g 2 "${small[@]}" --peer $peer
    else
        skipped=$((skipped + 1))
    fi
done
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ]
