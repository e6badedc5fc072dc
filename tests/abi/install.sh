#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD: installs into an empty folder, moves it, and builds and runs the examples
# against what is there: through pkg-config, through the CMake package, and statically.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0
. tests/check.sh

check "install" env DESTDIR="$work/stage" cmake --install "$build" --prefix /opt/first
mv "$work/stage/opt/first" "$work/moved" # an installed tree can be moved
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name 'libsolccl.so' | head -n 1)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir SOLCCL_TIMEOUT_MS=20000

check "pkg-config knows the version" test "$(pkg-config --modversion solccl)" = \
    "$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")"
if [ -f "$libdir/solccl/emu/flags" ]; then
    check "solccl emu runs a kernel, 2 ranks" "$prefix/bin/solccl" emu --seeds 2 \
        examples/device/all_reduce.cu
fi
flags=$(pkg-config --cflags --libs solccl)
for example in examples/[0-9]*.c; do
    name=$(basename "$example" .c)
    # shellcheck disable=SC2086 # flags are words
    check "$name with pkg-config" gcc -std=c11 -Wall -Wextra -Werror "$example" -o "$work/$name" \
        $flags -pthread
    check "$name is under 60 lines" test "$(wc -l <"$example")" -lt 60
done

# Runs as one rank, as threads or processes of its own, and (with the launcher) as three ranks.
for example in examples/[0-9]*.c; do
    name=$(basename "$example" .c)
    [ -x "$work/$name" ] || continue
    check "$name runs alone" timeout 30 "$work/$name"
    if [ -x "$prefix/bin/solccl" ]; then
        check "$name runs on 3 ranks" timeout 30 "$prefix/bin/solccl" run -n 3 "$work/$name"
    fi
done
if command -v mpirun.openmpi >/dev/null 2>&1; then
    check "Open MPI starts 01_all_reduce" timeout 60 mpirun.openmpi --allow-run-as-root \
        --oversubscribe -n 3 "$work/01_all_reduce"
else
    skipped=$((skipped + 1))
fi
if command -v mpirun.mpich >/dev/null 2>&1; then
    check "MPICH starts 01_all_reduce" timeout 60 mpirun.mpich -n 3 "$work/01_all_reduce"
else
    skipped=$((skipped + 1))
fi

# What the README shows is what a reader types: its program, its flags, its CMake target.
awk '/^```/ { if (on) exit } on; /^```c$/ { on = 1 }' README.md >"$work/readme.c"
# shellcheck disable=SC2086 # flags are words
check "the README's program compiles" gcc -std=c11 -Wall -Wextra -Werror "$work/readme.c" \
    -o "$work/readme" $flags
if [ -x "$prefix/bin/solccl" ]; then
    check "the README's program sums" bash -c \
        "timeout 30 '$prefix/bin/solccl' run -n 2 '$work/readme' | grep -cx '2 4 6 8' | grep -qx 2"
fi
mkdir "$work/reader"
{
    echo 'cmake_minimum_required(VERSION 3.16)'
    echo 'project(reader C)'
    echo "add_executable(app $work/readme.c)"
    grep -oE '(find_package|target_link_libraries)\([^)]*\)' README.md
} >"$work/reader/CMakeLists.txt"
check "the README's CMake lines: configure" cmake -S "$work/reader" -B "$work/reader/build" \
    -DCMAKE_PREFIX_PATH="$prefix"
check "the README's CMake lines: build" cmake --build "$work/reader/build"
check "the README's CMake lines: run" timeout 30 "$work/reader/build/app"

check "the CMake package: configure" cmake -S examples -B "$work/cmake" \
    -DCMAKE_PREFIX_PATH="$prefix"
check "the CMake package: build" cmake --build "$work/cmake"
check "the CMake package: run" timeout 30 "$work/cmake/02_unique_id_threads"
if [ -x "$prefix/bin/solccl" ]; then
    check "decode_layer on 2 ranks" timeout 30 "$prefix/bin/solccl" run -n 2 \
        "$work/cmake/decode_layer"
fi
check "static" gcc -std=c11 examples/02_unique_id_threads.c -o "$work/static" \
    -I"$prefix/include" "$libdir/libsolccl.a" -pthread -ldl -lm -lstdc++
check "static: run" env -u LD_LIBRARY_PATH timeout 30 "$work/static"
check "C++ includes it" g++ -std=c++17 -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only \
    -x c++ - <<<'#include <solccl/solccl.h>
int main() { return sol_version() == SOL_VERSION ? 0 : 1; }'
check "nothing of this machine is written down" bash -c \
    "! grep -rIl '$PWD' '$prefix'"
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ]
