#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [NAME...]: compile each mutant of mutants.txt and show that the emulator finds it.
# BUILD is the build tree with the emulator. Two at a time. Mutants whose name begins with norm_ are
# of the kernel of sol_all_reduce_norm, those with halves_ of sol_norm_start's and sol_norm_wait's,
# with vocab_ of sol_vocab_topk's, with transfer_ of solccl/transfer.h, moe_ of solccl/moe.h,
# quantized_ of solccl/quantized.h, multicast_ of those through the switch, and are shown to their
# tests. Prints "ok NAME: what was said" or
# "FAILED NAME: survived"; the last line is the sum. First the kernels as they are must pass.
set -u
build=$(cd "$1" && pwd) || exit 2
shift
cd "$(dirname "$0")/../../.."
root=$PWD
[ -f "$build/tests/emu/mutants.env" ] || { echo "no emulator in $build"; exit 77; }
cmake --build "$build" --target emu_driver emu_norm_driver emu_fused_driver emu_transfer_driver \
    emu_moe_driver emu_quantized_driver emu_multicast_driver emu_names >/dev/null || exit 1
. "$build/tests/emu/mutants.env"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mutant NAME FILE SUBSTITUTION SEEDS: 0 if the kernels pass.
mutant() {
    local dir=$work/$1 kernels=few_kernels.cu driver=$LIBRARIES ranks=2-4 op=
    case $1 in
    norm*) kernels=few_norm.cu driver=$NORM_LIBRARIES ranks=1-4 ;;
    halves*) kernels=few_halves.cu driver=$NORM_LIBRARIES ranks=3-4 op=--halves ;;
    moe*) kernels=few_moe.cu driver=$MOE_LIBRARIES ;;
    linear*) kernels=few_fused.cu driver=$FUSED_LIBRARIES ranks=1-4 op="--op linear" ;;
    vocab*) kernels=few_fused.cu driver=$FUSED_LIBRARIES ranks=1-4 op="--op vocab" ;;
    transfer*) kernels=few_transfer.cu driver=$TRANSFER_LIBRARIES ;;
    multicast*) kernels=few_multicast.cu driver=$MULTICAST_LIBRARIES ranks=3-4 ;;
    quantized*) kernels=few_quantized.cu driver=$QUANTIZED_LIBRARIES ;;
    esac
    mkdir -p "$dir/src" && cp -r src/device src/proto src/coll include/solccl "$dir/src/" || return 3
    if [ -n "$2" ]; then
        perl -0pi -e "$3" "$dir/src/$2" || return 3
        local whole=src/$2
        [ -f "$whole" ] || whole=include/$2
        cmp -s "$whole" "$dir/src/$2" && { echo "the substitution changes nothing"; return 3; }
    fi
    # shellcheck disable=SC2086
    $CXX $FLAGS -w -I"$root/src/emu/include" -I"$dir/src" -I"$root/src" -I"$root/include" \
        -x c++ -c "tests/emu/mutants/$kernels" -o "$dir/kernels.o" &&
        $CXX "$dir/kernels.o" $driver -o "$dir/emu_kernels" || return 3
    # shellcheck disable=SC2086
    timeout 240 "$dir/emu_kernels" $op --few --jobs 1 --ranks $ranks --seeds "$4"
}

try() { # try NAME FILE SUBSTITUTION
    local log=$work/$1.log said
    mutant "$1" "$2" "$3" 60 >"$log" 2>&1
    local code=$?
    said=$(grep -m1 -oE 'emu: error.*|is wrong.*|was not written.*|wrote outside.*|: byte.*' "$log" |
        sed 's/emu: error (seed [^)]*): //')
    rm -rf "${work:?}/$1"
    case $code in
    1) echo "ok $1: ${said:-found}" ;;
    0) echo "FAILED $1: survived" ;;
    124) echo "FAILED $1: not found in time" ;;
    *) echo "FAILED $1: could not be tried: $(tail -n 3 "$log" | tr '\n' ' ')" ;;
    esac
}

names=("$@")
wanted() {
    [ ${#names[@]} -eq 0 ] || printf '%s\n' "${names[@]}" | grep -qxF -- "$1"
}

# Only those that a mutant that is asked for is compared with.
unchanged() {
    local name kind
    while IFS= read -r name; do
        case $name in '#'* | '') continue ;; esac
        name=${name%% | *}
        wanted "$name" || continue
        kind=${name%%_*}
        case $kind in norm | halves | vocab | linear | transfer | moe | quantized | multicast) echo "${kind}_none" ;; *) echo none ;; esac
    done <tests/emu/mutants/mutants.txt | sort -u
}

as_they_are() { # as_they_are NAME
    mutant "$1" '' '' 4 >"$work/$1.log" 2>&1 || {
        tail -n 20 "$work/$1.log"
        echo "FAILED $1: the kernels as they are do not pass"
    }
    rm -rf "${work:?}/$1"
}
: >"$work/results"
for none in $(unchanged); do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    as_they_are "$none" >>"$work/results" &
done
while IFS= read -r line; do
    case $line in '#'* | '') continue ;; esac
    name=${line%% | *} rest=${line#* | }
    file=${rest%% | *} rest=${rest#* | }
    substitution=${rest% | *}
    wanted "$name" || continue
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    try "$name" "$file" "$substitution" >>"$work/results" &
done <tests/emu/mutants/mutants.txt
wait
sort "$work/results"
passed=$(grep -c '^ok ' "$work/results")
failed=$(grep -c '^FAILED ' "$work/results")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
