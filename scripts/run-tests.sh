#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run-tests.sh [STEP...]: everything `make test` and CI run, or only the steps named.
# Each step is a program; its output goes to build/logs/STEP.log and is shown when it fails.
# A step's own cases are counted: "N passed, N failed[, N skipped]" as our programs print it, and
# cmocka's summary; a step without such lines counts as one. The last line is the sum.
# Exit status: 0 only if something passed and nothing failed.
set -u
cd "$(dirname "$0")/.."
logs=build/logs
mkdir -p "$logs"
jobs=$(nproc 2>/dev/null || echo 2)
total_passed=0 total_failed=0 total_skipped=0
mutants=${SOLCCL_MUTANTS:-tenth}
selected=("$@")
started=$SECONDS

count() { # count LOG CODE: sets passed, failed, skipped
    read -r passed failed skipped < <(awk '
        match($0, /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/) {
            p += $1; f += $3; s += $5; next }
        /^\[  PASSED  \] +[0-9]+ test/ { p += $4 }
        /^\[  FAILED  \] +[0-9]+ test/ { f += $4 }
        /^\[  SKIPPED \] +[0-9]+ test/ { s += $4 }
        END { print p + 0, f + 0, s + 0 }' "$1")
    if [ $((passed + failed + skipped)) -eq 0 ]; then
        case $2 in
        0) passed=1 ;;
        77) skipped=1 ;;
        *) failed=1 ;;
        esac
    elif [ "$2" -ne 0 ] && [ "$2" -ne 77 ] && [ "$failed" -eq 0 ]; then
        failed=1 # it ended badly after its last count
    fi
}

cpu_seconds() { # cpu_seconds SHELL: of all its children that have ended
    local stat
    stat=$(cat "/proc/$1/stat")
    # shellcheck disable=SC2086 # words on purpose
    set -- ${stat##*) }
    echo $(((${14} + ${15}) / $(getconf CLK_TCK)))
}

selected() { # selected NAME: whether the step was asked for
    [ ${#selected[@]} -eq 0 ] || printf '%s\n' "${selected[@]}" | grep -qxF -- "$1"
}

execute() { # execute NAME SECONDS COMMAND...: its output to its log; how it ended to LOG.end
    local limit=$2 log=$logs/$1.log begin=$SECONDS self=$BASHPID code cpu
    shift 2
    rm -f "$log.end"
    cpu=$(cpu_seconds "$self")
    timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null
    code=$?
    echo "$code $limit $((SECONDS - begin)) $(($(cpu_seconds "$self") - cpu))" >"$log.end"
}

report() { # report NAME: counts the step and shows how it went
    local name=$1 log=$logs/$1.log code limit seconds cpu verdict=ok
    read -r code limit seconds cpu 2>/dev/null <"$log.end" || { code=1 limit=0 seconds=0 cpu=0; }
    count "$log" "$code"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    [ "$failed" -eq 0 ] || verdict=FAILED
    [ "$verdict" != ok ] || [ "$passed" -gt 0 ] || verdict=skipped
    printf '%-8s %-20s %4d s %4d cpu s   %s ok, %s bad, %s skipped\n' "$verdict" "$name" \
        "$seconds" "$cpu" "$passed" "$failed" "$skipped"
    if [ "$failed" -gt 0 ]; then
        [ "$code" -ne 124 ] || echo "    (killed after $limit s)"
        grep -vE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 40 | sed 's/^/    /'
    fi
}

build() { # build PRESET [CMAKE ARGUMENT...]
    local preset=$1
    shift
    cmake --preset "$preset" -G Ninja "$@" && cmake --build "build/$preset" -j "$jobs"
}

unit() { # unit BUILD [NAME]: every unit test program but NAME, each under its own limit
    local program status=0 code
    for program in "$1"/tests/unit_*; do
        [ -x "$program" ] && [ "$(basename "$program")" != "${2:-}" ] || continue
        echo "== $(basename "$program")"
        timeout --kill-after=5 300 "$program"
        code=$?
        if [ $code -ne 0 ] && [ $code -ne 77 ]; then
            echo "$(basename "$program") ended with status $code"
            status=1
        fi
    done
    return $status
}

emulator() { # emulator BUILD: the kernels of GPU ranks, without a GPU
    [ -f "$1/tests/emu/mutants.env" ] || return 77
    cmake --build "$1" --target emulator -j "$jobs" >"$1/emulator.log" || {
        tail -n 20 "$1/emulator.log"
        return 1
    }
    "$1/tests/emu_litmus" && "$1/tests/emu_faults" && "$1/tests/emu_multicast" &&
        "$1/tests/emu_kernels" --quick && "$1/tests/emu_norm" --quick &&
        "$1/tests/emu_fused" --quick && "$1/tests/emu_transfer" --quick && "$1/tests/emu_moe" --quick &&
        "$1/tests/emu_quantized" --quick && "$1/tests/emu_quantized_scale" && "$1/tests/emu_enqueue" &&
        "$1/tests/emu_late" &&
        "$1/tests/emu_matrix" --quick --jobs 4 && tests/emu/conformance.sh "$1" quick
}

# share FILE: the names of a tenth of its mutants, for time; which, the commit decides, so that
# a commit is always tested alike. SOLCCL_MUTANTS=all: every one (`make mutants`).
share() {
    local commit part
    commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
    part=$((0x$commit % 10))
    awk -v part=$part -v all="$mutants" -F ' [|] ' '
        !/^(#|$)/ && (all == "all" || n++ % 10 == part) { print $1 }' "$1"
}
# half PATTERN...: every other file in git, for time; which, the commit decides (`make lint`: all).
half() {
    local commit
    commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
    git ls-files -- "$@" | awk -v part=$((0x$commit % 2)) 'NR % 2 == part'
}
export jobs mutants
export -f build unit emulator share half

run() { # run NAME SECONDS COMMAND
    selected "$1" || return 0
    execute "$1" "$2" bash -c "$3"
    report "$1"
}

together() { # together NAME SECONDS COMMAND [NAME SECONDS COMMAND]...: steps that mostly wait, or have one thread
    local names=() name
    while [ $# -ge 3 ]; do
        if selected "$1"; then
            names+=("$1")
            execute "$1" "$2" bash -c "$3" &
        fi
        shift 3
    done
    wait
    for name in "${names[@]}"; do
        report "$name"
    done
}

lane() { # lane CPUS [NAME SECONDS COMMAND]...: one after another, on these processors only
    taskset -pc "$1" "$BASHPID" >/dev/null 2>&1
    jobs=$(nproc)
    shift
    while [ $# -ge 3 ]; do
        if selected "$1"; then
            execute "$1" "$2" bash -c "$3"
            echo "         ($1 has ended)" >&2
        fi
        shift 3
    done
}

# lanes NAME SECONDS COMMAND... -- NAME SECONDS COMMAND...: two lists of steps that compute and have
# no clock to keep, each on one half of the processors. Reported when both are through.
lanes() {
    local cpus half first second arguments=("$@") at=0 i
    mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
    half=$(((${#cpus[@]} + 1) / 2))
    first=$(IFS=,; echo "${cpus[*]:0:half}")
    second=$(IFS=,; echo "${cpus[*]:half}")
    while [ "${arguments[at]}" != -- ]; do at=$((at + 3)); done
    lane "$first" "${arguments[@]:0:at}" &
    lane "${second:-$first}" "${arguments[@]:at+1}" &
    wait
    unset "arguments[at]"
    arguments=("${arguments[@]}")
    for ((i = 0; i < ${#arguments[@]}; i += 3)); do
        ! selected "${arguments[i]}" || report "${arguments[i]}"
    done
}

# The sanitizers' findings are failures, also in ranks that are child processes.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=0:exitcode=66:second_deadlock_stack=1
# (an old log or a setting of the caller's must not change what is tested)
for v in $(compgen -e SOLCCL_); do unset "$v"; done

run dependencies 900 'scripts/install-deps.sh test'
run build-gcc 600 'build gcc'
run build-clang 600 'build clang'
run build-asan 600 'build asan'
run build-tsan 600 'build tsan'
run lint-format 120 'scripts/lint.sh format'
together unit 600 'unit build/gcc' unit-clang 600 'unit build/clang' unit-asan 600 'unit build/asan' \
    unit-tsan 600 'unit build/tsan unit_reduce' # (reduce has one thread)
run conformance 600 'build/gcc/tests/conformance'
run edges 400 'tests/edges.sh build/gcc'
run matrix 120 'build/gcc/tests/matrix --quick --jobs 4'
run soak 120 'build/gcc/tests/soak --kills 60 && build/gcc/tests/soak --minutes 0.1'
run conformance-clang 300 'build/clang/tests/conformance --quick'
run conformance-asan 400 'build/asan/tests/conformance --quick'
run conformance-tsan 400 'build/tsan/tests/conformance --quick --threads'
together faults 400 'build/gcc/tests/faults' faults-asan 400 'build/asan/tests/faults' \
    faults-tsan 100 'build/tsan/tests/faults threads'
run lint-tidy 600 'TIDY="$(half "src/*.c" "tools/*.c" "examples/*.c")" scripts/lint.sh tidy'
run abi 60 'tests/abi/exports.sh build/gcc build/clang'
run dropin 200 'tests/dropin/run.sh build/gcc'
run dropin-asan 300 'tests/dropin/run.sh build/asan --path-only'
run dropin-exports 60 'tests/dropin/exports.sh build/gcc build/clang'
run python 300 'tests/python/run.sh build/gcc numpy fast fast-asan wheel'
run python-torch 620 'tests/python/run.sh build/gcc torch'
run headers 60 'tests/lint/headers.sh'
lanes kernels 1500 'tests/kernels/gate.py' \
    -- emulator 900 'emulator build/gcc' \
    mutants 1500 'tests/emu/mutants/run.sh build/gcc $(share tests/emu/mutants/mutants.txt)' \
    device 300 'tests/emu/device.sh build/gcc && tests/emu/guide.sh build/gcc' \
    device-mutants 1500 'tests/emu/mutants/device.sh build/gcc $(share tests/emu/mutants/device.txt)' \
    proofs 500 'proofs/run.sh --quick' lint-cppcheck 300 'scripts/lint.sh cppcheck' \
    fuzz 200 'tests/fuzz/run.sh 3'
run layering 30 'tests/lint/layering.sh'
run house 30 'tests/lint/house.sh'
together install 300 'tests/abi/install.sh build/gcc' tool 300 'tests/tool.sh build/gcc' \
    report 200 'tests/report_screenshot.sh build/gcc'
run tool-torch 60 'tests/perf_torch_test.py'
run tool-use 300 'tests/tool_test.sh build/gcc'

if [ $((total_passed + total_failed)) -eq 0 ]; then
    echo "run-tests: no step ran" >&2
    exit 1
fi
echo "logs in $logs; $((SECONDS - started)) s"
if [ $total_skipped -gt 0 ]; then
    echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
else
    echo "$total_passed passed, $total_failed failed"
fi
[ $total_failed -eq 0 ] && [ $total_passed -gt 0 ]
