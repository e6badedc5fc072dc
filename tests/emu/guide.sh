#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# guide.sh BUILD: docs/write-your-own.md as a reader follows it: its code and its commands, as they
# stand there, in an empty folder, with an installed solccl. Fewer seeds, for time; with CUDA in
# BUILD, nvcc compiles the program too.
set -u
build=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
guide=$PWD/docs/write-your-own.md
include=$PWD/include
"$build/bin/solccl" emu --help >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/check.sh
code() { # code I: the I-th block of C
    awk -v i="$1" '/^```c$/ { n++; inside = n == i; next } /^```/ { inside = 0 } inside' "$guide"
}
command_of() { # command_of PATTERN: the first line of a block that matches
    awk -v p="$1" '/^```/ { open = !open; inside = open && $0 == "```"; next } inside && $0 ~ p { print; exit }' "$guide" |
        sed 's/--seeds 100/--seeds 10/'
}
follow() { # follow PATTERN: run the guide's command in the reader's folder
    local line
    line=$(command_of "$1")
    [ -n "$line" ] || return 1
    (cd "$work/empty" && timeout 100 bash -c "$line") >"$work/said" 2>&1
    local code=$?
    cat "$work/said"
    return $code
}

check "install" cmake --install "$build" --prefix "$work/prefix"
export PATH=$work/prefix/bin:$PATH
mkdir "$work/empty"

code 1 >"$work/empty/mine.cu"
check "1. an empty kernel runs" follow 'emu -n 2 '
check "1. every rank speaks" grep -q 'I am rank 1' "$work/said"
check "1. and the emulator counts" grep -q '^1 passed, 0 failed' "$work/said"
{
    sed -n '/^#include/p' "$work/empty/mine.cu"
    code 2
    code 3
} >"$work/program"
cp "$work/program" "$work/empty/mine.cu"
check "2. an all_reduce is right" follow 'emu -n 3 '
check "2. with every seed" grep -q '^10 passed, 0 failed' "$work/said"

sed 's/sol_session_close(ch, s);/;/' "$work/program" >"$work/empty/mine.cu"
follow 'emu -n 3 ' >/dev/null
check "3. without the close: found" grep -q 'emu: error (seed 0x.*): deadlock' "$work/said"
check "3. and its line named" grep -qE '^ +all_reduce mine.cu:[0-9]+' "$work/said"

cp "$work/program" "$work/empty/mine.cu"
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
[ ! -x "$nvcc" ] || check "4. nvcc takes it" "$nvcc" -arch=sm_90 -std=c++17 -I"$include" \
    -c "$work/empty/mine.cu" -o "$work/mine.o"
while IFS= read -r link; do
    check "$link is there" test -e "docs/$link"
done < <(grep -oE '\]\([^)#:]+\)' "$guide" | sed 's/^](//; s/)$//' | sort -u)
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
