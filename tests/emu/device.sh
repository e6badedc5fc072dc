#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# device.sh BUILD: the device API in the emulator, as a user runs it: dev_api.cu and all examples, with
# 2 to 4 ranks. Each program is compiled once and run with several seeds; with CUDA in BUILD, nvcc
# compiles them too.
set -u
build=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/../.."
solccl=$build/bin/solccl
"$solccl" emu --help >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/check.sh
for source in tests/emu/dev_api.cu examples/device/*.cu; do
    name=$(basename "$source" .cu)
    check "$name compiles" "$solccl" emu -Werror -o "$work/$name" "$source"
    for ranks in 2 3 4; do
        check "$name, $ranks ranks" timeout 100 "$work/$name" --ranks $ranks --seed 1 --seeds 3
    done
    check "$name, ranks share GPUs" timeout 100 "$work/$name" --ranks 3 --devices 2 --seeds 2
done
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ -x "$nvcc" ]; then
    for source in examples/device/*.cu; do
        check "$(basename "$source") with nvcc" "$nvcc" -arch=sm_90 -std=c++17 -Iinclude -c \
            "$source" -o "$work/object.o"
    done
fi
check "dev_api, multicast asked for" env SOLCCL_CUDA_MULTICAST=1 timeout 100 "$work/dev_api" \
    --ranks 3 --seeds 3 -- multicast
# A wrong option is named; -n is what it is to solccl emu.
"$work/dev_api" -n 2 --fly 1 >"$work/said" 2>&1
check "a wrong option is refused" test $? -eq 2
check "and named" grep -qF "'--fly' is not an option" "$work/said"
"$work/dev_api" --ranks 9 >"$work/said" 2>&1
check "too many ranks are refused" test $? -eq 2
check "and said" grep -qF -- "--ranks 9: not a number" "$work/said"
check "-n" grep -q ': 3 ranks' <("$work/dev_api" -n 3 --seed 1)
check "--help" grep -q -- '--time-passes' <("$work/dev_api" --help 2>/dev/null)
# An error names the line, and the seed repeats it.
sed 's/sol_session_flush(ch, s);.*/;/' examples/device/panel_broadcast.cu >"$work/bad.cu"
cp examples/device/rig.h "$work/"
"$solccl" emu -n 2 --seed 7 --seeds 3 "$work/bad.cu" >"$work/first" 2>&1
"$solccl" emu -n 2 --seed 7 --seeds 3 "$work/bad.cu" >"$work/again" 2>&1
check "a fault is found" grep -qE 'emu: error .seed 0x|deadlock' "$work/first"
check "and its line named" grep -qE 'bad.cu:[0-9]+' "$work/first"
check "a seed repeats its run" cmp <(sed 's,/solccl-emu-[^/]*,,' "$work/first") \
    <(sed 's,/solccl-emu-[^/]*,,' "$work/again")
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
