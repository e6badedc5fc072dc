#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh [format|tidy|cppcheck|all]: formatting and static analysis of all C files in git.
# A gate pins its tools: other versions of clang-format format differently, so version 14 is used
# and the check is skipped (exit 77) where it cannot be had.
set -u
cd "$(dirname "$0")/.."
what=${1:-all}

tool() { # tool NAME: NAME-14, or NAME if it is version 14
    if command -v "$1-14" >/dev/null 2>&1; then
        echo "$1-14"
    elif "$1" --version 2>/dev/null | grep -q 'version 14\.'; then
        echo "$1"
    fi
}

files() { # files PATTERN...: those in git, less generated ones
    git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done
}

format() {
    local format
    format=$(tool clang-format)
    [ -n "$format" ] || { echo "clang-format 14 is not here"; return 77; }
    files '*.c' '*.h' '*.cu' '*.cuh' | xargs -r "$format" --dry-run -Werror
}

tidy() {
    local tidy
    tidy=$(tool clang-tidy)
    [ -n "$tidy" ] || { echo "clang-tidy 14 is not here"; return 77; }
    [ -f build/gcc/compile_commands.json ] || cmake --preset gcc >/dev/null || return 1
    # Only files that are compiled: a file without its flags gives nonsense. TIDY narrows the choice
    # (make test: what is shipped, for time; `make lint`: everything).
    # shellcheck disable=SC2086 # patterns on purpose
    files ${TIDY:-*.c} | while read -r f; do
        grep -q "\"file\": \".*/$f\"" build/gcc/compile_commands.json && echo "$f"
    done | xargs -r -P "$(nproc)" -n 4 "$tidy" --quiet -p build/gcc --warnings-as-errors='*' \
        2> >(grep -vE '^[0-9]+ warnings? generated|^Suppressed|^Use -header' >&2)
}

cppcheck_all() {
    command -v cppcheck >/dev/null 2>&1 || { echo "cppcheck is not here"; return 77; }
    # Never one job: then it follows calls from file to file, and takes every NULL that a test passes
    # on purpose for an error.
    files 'src/*.c' 'tools/*.c' 'tests/*.c' 'examples/*.c' 'python/*.c' |
        cppcheck --quiet --std=c11 --language=c --enable=warning,portability,performance \
            --inline-suppr --suppress=missingIncludeSystem --suppress=unusedStructMember \
            --error-exitcode=1 -j $(($(nproc) + 1)) -Iinclude -Isrc -Itests -D__x86_64__ -D__GNUC__=12 \
            -D__AVX2__ -D__F16C__ -D__AVX512F__ -D__AVX512BW__ -D__AVX512VL__ -D__AVX512DQ__ \
            --file-list=-
}

case $what in
format) format ;;
tidy) tidy ;;
cppcheck) cppcheck_all ;;
all)
    status=0
    for check in format tidy cppcheck_all; do
        $check
        code=$?
        echo "lint: $check: $([ $code -eq 0 ] && echo ok || { [ $code -eq 77 ] && echo skipped || echo FAILED; })"
        [ $code -eq 0 ] || [ $code -eq 77 ] || status=1
    done
    exit $status
    ;;
*)
    echo "usage: $0 [format|tidy|cppcheck|all]" >&2
    exit 2
    ;;
esac
