#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tool_test.sh BUILD: the solccl command as people use it: run's promises (status, signals, time,
# orphans), perf on every operation with verification, in every way to start it, and info.
set -u
cd "$(dirname "$0")/.."
build=${1:-build/release}
solccl=$build/bin/solccl
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

# expect NAME STATUS PATTERN COMMAND...: the command must end with STATUS and print PATTERN.
expect() {
    local name=$1 status=$2 pattern=$3 code
    shift 3
    timeout --kill-after=5 120 "$@" >"$out/out" 2>&1 </dev/null
    code=$?
    if [ $code -eq "$status" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$out/out"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: status $code ($status was expected), output without '$pattern':"
        tail -n 15 "$out/out" | sed 's/^/    /'
    fi
}

expect "version" 0 '^solccl [0-9]+\.[0-9]+\.[0-9]+$' "$solccl" --version
expect "help" 0 'solccl perf' "$solccl" --help
expect "no command" 2 'solccl run' "$solccl"
expect "unknown command" 2 "'fly' is not a command" "$solccl" fly

# run
# shellcheck disable=SC2016 # the ranks expand these
expect "environment" 0 '^1 of 2 local 1 secret 64$' "$solccl" run -n 2 sh -c \
    'echo $SOLCCL_RANK of $SOLCCL_SIZE local $SOLCCL_LOCAL_RANK secret ${#SOLCCL_JOB}'
# shellcheck disable=SC2016
expect "labels" 0 '^\[1\] one$' "$solccl" run -n 2 --label sh -c 'test $SOLCCL_RANK = 0 || echo one'
# shellcheck disable=SC2016
expect "first failing status" 7 'rank 1 ended with status 7' "$solccl" run -n 3 sh -c \
    'test $SOLCCL_RANK != 1 || exit 7; sleep 60'
# shellcheck disable=SC2016
expect "killed rank" 137 'rank 0 was killed by signal 9' "$solccl" run -n 2 sh -c \
    'test $SOLCCL_RANK = 1 || kill -KILL $$; sleep 60'
# shellcheck disable=SC2016
expect "deaf rank" 3 'rank 0 ended with status 3' "$solccl" run -n 2 sh -c \
    'trap "" TERM; test $SOLCCL_RANK = 1 || exit 3; sleep 60'
# The others have a moment to say what they make of it, and no longer than they need: both
# survivors tell of the death and leave a dump, long before this grace ends.
mkdir "$out/dumps"
begin=$SECONDS
# shellcheck disable=SC2016
expect "survivors say who died" 137 'rank 2 of 3: .*rank 1 \(pid [0-9]+\).* is gone' \
    env SOLCCL_DUMP_DIR="$out/dumps" "$solccl" run -n 3 --grace 60 bash -c \
    '[ $SOLCCL_RANK = 1 ] && { (sleep 1; kill -KILL $$) & }
     exec "$0" perf all_reduce -b 8 -e 8 --rounds 1000 --round-ms 100 --no-bound' "$solccl"
grep -qE 'rank 0 of 3: .*rank 1 \(pid [0-9]+\).* is gone' "$out/out"
expect "the other survivor too" 0 '' test $? -eq 0
expect "survivors leave dumps" 0 '^2$' bash -c 'ls "$0" | wc -l' "$out/dumps"
expect "a grace ends with the last rank" 0 '' test $((SECONDS - begin)) -lt 40
# shellcheck disable=SC2016
expect "last words" 3 '^words' "$solccl" run -n 2 sh -c \
    'test $SOLCCL_RANK = 0 || exit 3; sleep 0.05; echo words; sleep 60'
# shellcheck disable=SC2016
expect "no last words" 3 'rank 1 ended' "$solccl" run -n 2 --grace 0 sh -c \
    'test $SOLCCL_RANK = 0 || exit 3; sleep 2; echo words; sleep 60'
grep -q '^words' "$out/out"
expect "no last words were said" 0 '' test $? -eq 1
expect "no such grace" 2 'seconds were expected' "$solccl" run -n 2 --grace soon true
expect "timeout" 124 '0.3 s have passed' "$solccl" run -n 2 --timeout 0.3 sleep 60
expect "not found" 127 "cannot run 'no-such-command'" "$solccl" run -n 2 no-such-command
expect "no ranks" 2 'a number from 1 to 64' "$solccl" run -n 65 true
expect "no program" 2 'the command is missing' "$solccl" run -n 2

# what a rank leaves behind is ended: this sleep has a length of its own to be found by
marker=61.$$
expect "leftovers" 0 '' "$solccl" run -n 2 sh -c "sleep $marker & exit 0"
expect "leftovers are gone" 1 '' pgrep -f "^sleep $marker"

# a signal to the launcher reaches the ranks
"$solccl" run -n 2 sh -c 'trap "echo heard; exit 0" USR1 TERM; while :; do sleep 0.1; done' \
    >"$out/heard" 2>&1 &
launcher=$!
sleep 1
kill -TERM $launcher
wait $launcher
code=$?
if [ $code -eq 143 ] && [ "$(grep -c heard "$out/heard")" -eq 2 ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED: signals: status $code, $(cat "$out/heard")"
fi

# a communicator that is made says so, to who asks
isa=$("$solccl" info | sed -n 's/^cpu ranks: instruction set: //p')
expect "what was made" 0 "info: comm [0-9a-f]{4} \\(perf\\), rank 1 of 2: made of cpu ranks, on $isa.*; solccl [0-9.]+$" \
    env SOLCCL_LOG=info "$solccl" run -n 2 "$solccl" perf barrier --rounds 1 --round-ms 1 --no-bound
expect "each rank says it once" 0 '^2$' grep -c 'made of' "$(cp "$out/out" "$out/made" && echo "$out/made")"
expect "nobody asked" 0 '' "$solccl" perf barrier -g 2 --rounds 1 --round-ms 1 --no-bound
grep -q 'made of' "$out/out"
expect "nothing is said" 0 '' test $? -eq 1

# perf: everything verified; nothing is timed for its speed
quick=(-b 1 -e 20K -f 141 --rounds 1 --round-ms 0.5)
every=(all reduce gather scatter sendrecv barrier)
expect "every operation" 0 '^# barrier .* 1 ' "$solccl" perf "${every[@]}" -g 2 "${quick[@]}"
expect "three ranks, every op and place" 0 '^ +[0-9]+ +[0-9]+ +bfloat16 +avg +1 ' "$solccl" perf \
    "${every[@]}" -g 3 "${quick[@]}" --no-bound -d bfloat16 -o all --in-place both
expect "every type" 0 '^ +[0-9]+ +[0-9]+ +float8_e5m2 +sum' "$solccl" perf all_reduce \
    reduce_scatter -g 2 "${quick[@]}" --no-bound -d all
expect "symmetric memory" 0 'symmetric buffers' "$solccl" perf all -g 2 "${quick[@]}" --no-bound -R 2
expect "registered memory" 0 'registered buffers' "$solccl" perf all -g 2 "${quick[@]}" --no-bound -R 1
expect "one call at a time" 0 'each call alone' "$solccl" perf all_reduce -g 2 "${quick[@]}" -z 1 -n 20
expect "more ranks than CPUs" 0 'share [0-9]+ cores' taskset -c 0 "$solccl" perf all_reduce -g 2 \
    -b 8 -e 8 --rounds 1 --round-ms 1
expect "under a launcher" 0 '^# ranks +3 processes' "$solccl" run -n 3 "$solccl" perf all_reduce \
    "${quick[@]}" --no-bound
expect "fixed root" 0 'root fixed' "$solccl" perf broadcast -g 2 "${quick[@]}" -r 1
expect "unknown operation" 2 "'all_reduse' is not an operation" "$solccl" perf all_reduse
expect "unwritable result" 1 'cannot be written' "$solccl" perf barrier -g 2 --json /nowhere/x
expect "unreadable rows" 1 'cannot be read' "$solccl" perf --from /nowhere/x

# results: rows in JSON and CSV, and back
expect "results" 0 '' "$solccl" perf all_reduce broadcast -g 2 "${quick[@]}" --json "$out/r.jsonl" \
    --csv "$out/r.csv" --report "$out/r.html"
rows=$(wc -l <"$out/r.jsonl")
expect "rows are kept" 0 '^4 5$' echo "$rows" "$(wc -l <"$out/r.csv")"
expect "rows are JSON" 0 '^4$' python3 -c "
import json
rows = [json.loads(line) for line in open('$out/r.jsonl')]
for row in rows:
    assert row['library'] == 'solccl' and row['wrong'] == 0 and row['ranks'] == 2, row
    assert 0 < row['us_min'] <= row['us_p50'] <= row['us_p99'] and row['sol_us'] > 0, row
    assert isinstance(row['versions'], dict) and isinstance(row['sol_terms'], dict), row
print(len(rows))"
expect "rows are shown" 0 'all_reduce +float32 +2' "$solccl" perf --from "$out/r.jsonl"
head -c 300 "$out/r.jsonl" >"$out/cut.jsonl"
expect "a cut row" 1 'line 1: ' "$solccl" perf --from "$out/cut.jsonl"

# peers, where they are installed
for peer in openmpi mpich; do
    if [ -x "$build/bin/solccl-perf-$peer" ] && command -v "mpirun.$peer" >/dev/null 2>&1; then
        expect "peer $peer" 0 "\\| +$peer" "$solccl" perf "${every[@]}" -g 2 "${quick[@]}" \
            -d float32,bfloat16 --peer $peer
    fi
done

expect "info" 0 '^all_reduce, ' "$solccl" info
expect "info for one" 0 '^broadcast, 4 ranks' "$solccl" info --explain broadcast -g 4

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
