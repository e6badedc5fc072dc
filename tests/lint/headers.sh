#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# headers.sh: public headers compile alone as C11 and as C++, with either compiler, without a
# warning; internal ones as C11; twice each, so that guards are tested.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0
try() { # try COMPILER LANGUAGE STANDARD HEADER FLAG...
    local compiler=$1 language=$2 standard=$3 header=$4
    shift 4
    command -v "$compiler" >/dev/null 2>&1 || return 0
    if printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "$compiler" -x "$language" -std="$standard" -Wall -Wextra -Werror -fsyntax-only "$@" -; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $header with $compiler as $standard"
    fi
}
for header in include/solccl/*.h include/solccl/device/*.h; do
    name=${header#include/}
    # (headers for kernel authors are nvcc's: they name the CUDA runtime)
    grep -q 'cuda_runtime' "$header" && continue
    for compiler in gcc clang; do
        try $compiler c c11 "$name" -pedantic -Iinclude
    done
    for compiler in g++ clang++; do
        for standard in c++11 c++20; do
            try $compiler c++ $standard "$name" -pedantic -Iinclude
        done
    done
done
for header in src/base/*.h src/proto/*.h src/coll/*.h src/core/*.h src/backend/shm/*.h; do
    [ -f "$header" ] || continue
    case $header in */reduce_type.h | *_type.h | *_template.h) continue ;; esac # included many times on purpose
    head -n 30 "$header" | grep -q 'lint: not alone' && continue
    try gcc c c11 "${header#src/}" -D_GNU_SOURCE -Wno-unused-function -Iinclude -Isrc
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
