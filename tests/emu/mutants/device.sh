#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# device.sh BUILD [NAME...]: compile dev_api.cu against each mutant of device.txt and show that the
# emulator finds it. BUILD has bin/solccl. Two at a time. Prints "ok NAME: what was said" or
# "FAILED NAME: survived"; the last line is the sum.
set -u
build=$(cd "$1" && pwd) || exit 2
shift
cd "$(dirname "$0")/../../.."
solccl=$build/bin/solccl
[ -f "$(echo "$build"/lib*/solccl/emu/flags "$build"/lib/*/solccl/emu/flags | tr ' ' '\n' |
    grep -v '\*' | head -n 1)" ] || { echo "no emulator in $build"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

try() { # try NAME FILE TEST SUBSTITUTION
    local dir=$work/$1 log=$work/$1.log code said
    mkdir -p "$dir" && cp -r include/solccl "$dir/"
    perl -0pi -e "$4" "$dir/solccl/device/$2"
    if cmp -s "include/solccl/device/$2" "$dir/solccl/device/$2"; then
        echo "FAILED $1: the substitution changes nothing"
        return
    fi
    # in two places: a fault that shows with two ranks only in a hundred seeds shows with more at once
    if ! "$solccl" emu -w -I"$dir" -o "$dir/program" tests/emu/dev_api.cu >"$log" 2>&1; then
        echo "FAILED $1: does not compile: $(tail -n 2 "$log" | tr '\n' ' ')"
        return
    fi
    code=0
    for ranks in 2 3 4; do
        timeout 150 "$dir/program" --ranks $ranks --seed 1 --seeds 20 -- "$3" >"$log" 2>&1
        code=$?
        [ $code -eq 0 ] || break
    done
    said=$(grep -m1 -oE 'emu: error.*|[0-9]+ wrong' "$log" | sed 's/emu: error (seed [^)]*): //')
    rm -rf "$dir"
    case $code in
    0) echo "FAILED $1: survived" ;;
    1) echo "ok $1: ${said:-found}" ;;
    124) echo "FAILED $1: not found in time" ;;
    *) echo "FAILED $1: ended with $code: $(tail -n 2 "$log" | tr '\n' ' ')" ;;
    esac
}

names=("$@")
while IFS= read -r line; do
    case $line in '#'* | '') continue ;; esac
    name=${line%% | *} rest=${line#* | }
    file=${rest%% | *} rest=${rest#* | }
    test=${rest%% | *} rest=${rest#* | }
    substitution=${rest% | *}
    if [ ${#names[@]} -gt 0 ] && ! printf '%s\n' "${names[@]}" | grep -qxF -- "$name"; then
        continue
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    try "$name" "$file" "$test" "$substitution" | tee -a "$work/results" &
done <tests/emu/mutants/device.txt
wait

passed=$(grep -c '^ok ' "$work/results")
failed=$(grep -c '^FAILED ' "$work/results")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
