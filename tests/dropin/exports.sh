#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# exports.sh BUILD...: the drop-in exports every function of NCCL 2.28.9 and 2.30.7 (nccl-VERSION.txt:
# what those libraries export), each also as pncclX, and nothing else. Where NCCL's header is
# installed (or in NCCL_HOME), every function that it declares must be exported too.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0
same() { # same NAME WANTED ACTUAL
    local difference
    if difference=$(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3")); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$1" "$difference"
    fi
}
known=$(cat tests/dropin/nccl-*.txt | LC_ALL=C sort -u)
named=$(sed -n 's/^NCCL_[A-Z]*(\(nccl[A-Za-z0-9]*\))$/\1/p' src/dropin/nccl/nccl_names.h | LC_ALL=C sort)
same "nccl_names.h has every function of every version, once" "$known" "$named"
for build in "$@"; do
    library=$build/libsolccl-nccl.so
    exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort)
    same "$build: exports" "$( (echo "$known" && echo "$known" | sed s/^/p/) | LC_ALL=C sort)" "$exported"
    same "$build: soname" "libsolccl-nccl.so.0" \
        "$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')"
    same "$build: no needed library but libc's" "" "$(readelf -d "$library" | grep NEEDED |
        grep -vE 'lib(c|m|pthread|dl|rt|gcc_s)\.so|ld-linux')"
    same "$build: does not exit or abort" "" \
        "$(nm -D --undefined-only "$library" | grep -owE 'exit|_exit|abort|quick_exit|__assert_fail')"
done
for header in ${NCCL_HOME:+"$NCCL_HOME/include/nccl.h"} /usr/include/nccl.h /usr/local/cuda/include/nccl.h; do
    [ -f "$header" ] || continue
    declared=$(grep -vE '^#|^ *(/\*|\*)' "$header" | grep -oE '\bnccl[A-Z][A-Za-z0-9]*[[:space:]]*\(' |
        tr -d ' (' | LC_ALL=C sort -u)
    same "every function of $header is known" "" "$(LC_ALL=C comm -23 <(echo "$declared") <(echo "$known"))"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
