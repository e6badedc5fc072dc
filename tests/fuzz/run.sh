#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [SECONDS [NAME...]]: builds the fuzzers (clang's libFuzzer, with the address and
# undefined-behaviour sanitizers) and lets each run for SECONDS (default 5) from its corpus, on one
# CPU. Ends with status 1 if one found something, 77 without clang. What is new to a corpus goes to
# build/fuzz/corpus; `run.sh --merge` adds the smallest set of it to tests/fuzz/corpus.
set -u
cd "$(dirname "$0")/../.."
seconds=${1:-5}
shift $(($# > 0 ? 1 : 0))
names=${*:-boot json env plan perf}
clang=$(command -v clang || command -v clang-14) || exit 77
out=build/fuzz
mkdir -p $out/corpus

sources_of() {
    case $1 in
    boot) echo src/base/*.c src/core/boot*.c src/core/unique_id.c ;;
    json) echo tools/json.c tools/doctor.c tools/tool.c ;;
    env) echo src/base/*.c src/core/unique_id.c ;;
    plan) echo src/base/*.c src/coll/dtype.c src/core/call.c src/backend/cuda/cuda_plan.c ;;
    perf) echo tools/perf_options.c tools/perf_ops.c tools/tool.c src/coll/dtype.c ;;
    esac
}

passed=0 failed=0
for name in $names; do
    program=$out/fuzz_$name
    # shellcheck disable=SC2046 # words on purpose
    "$clang" -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=undefined -Iinclude -Isrc -Itools \
        tests/fuzz/fuzz_"$name".c $(sources_of "$name") -lm -o "$program" || exit 1
    mkdir -p "$out/corpus/$name" "tests/fuzz/corpus/$name"
    if [ "$seconds" = --merge ]; then
        "$program" -merge=1 "tests/fuzz/corpus/$name" "$out/corpus/$name" >/dev/null 2>&1
        continue
    fi
    if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2000 -max_len=4096 \
        -artifact_prefix="$out/$name-" -print_final_stats=1 -close_fd_mask=0 \
        "$out/corpus/$name" "tests/fuzz/corpus/$name" >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok       $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") inputs"
    else
        failed=$((failed + 1))
        echo "FAILED   $name:"
        tail -n 40 "$out/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
