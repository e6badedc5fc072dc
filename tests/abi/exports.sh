#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# exports.sh BUILD...: the shared library exports exactly exports.txt, each with its version; the
# header declares exactly those too, and the soname is as promised.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0
check() { # check NAME COMMAND...
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
    fi
}
wanted=$(LC_ALL=C sort tests/abi/exports.txt)

same() { diff <(printf '%s\n' "$1") <(printf '%s\n' "$2"); }
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | LC_ALL=C sort -u; }
unversioned() { nm -D --defined-only "$1" | awk '$2 != "A" && $3 !~ /@@SOLCCL_[0-9.]+$/'; }
declared() {
    # Declarations of the public headers: SOL_API up to the opening parenthesis, over line ends.
    cat include/solccl/*.h | grep -v '^#' | tr '\n' ' ' | grep -oE 'SOL_API [^;(]*\(' |
        sed -E 's/.*[ *](sol_[a-z0-9_]+)\($/\1/' | LC_ALL=C sort -u
}
mapped() { grep -oE '^ +sol_[a-z0-9_]+;' cmake/solccl.map | tr -d ' ;' | LC_ALL=C sort -u; }

check "headers declare exports.txt" same "$wanted" "$(declared)"
check "the version script names exports.txt" same "$wanted" "$(mapped)"
for build in "$@"; do
    lib=$build/libsolccl.so
    check "$build: exports are exports.txt" same "$wanted" "$(exported "$lib")"
    check "$build: every export has a version" same "" "$(unversioned "$lib")"
    check "$build: soname" grep -q 'SONAME.*\[libsolccl.so.0\]' <(readelf -d "$lib")
    # Thread-local variables that are near (src/base/near.h) have room where it is opened late.
    check "$build: room for thread-local variables" test \
        "$(( $(readelf -lW "$lib" | awk '$1 == "TLS" { print $6 }') ))" -le 128
    # Nothing that would make the library end the program; malloc only through base.
    check "$build: does not exit or abort" same "" \
        "$(nm -D --undefined-only "$lib" | grep -owE 'exit|_exit|abort|quick_exit|__assert_fail')"
    # Hidden in the static library as well, so that a program linking it exports nothing of ours.
    check "$build: no needed library but libc's" same "" "$(readelf -d "$lib" | grep NEEDED |
        grep -vE 'lib(c|m|pthread|dl|rt|gcc_s)\.so|ld-linux')"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
