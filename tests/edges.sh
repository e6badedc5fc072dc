#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# edges.sh BUILD: no byte before or behind a buffer is touched. The conformance suite with memory that
# ends (cpu-after) or begins (cpu-before) at a page that is not there, for each way, protocol and
# instruction set of CPU ranks, two programs at a time. The sum of their counts is the result.
set -u
program=$(cd "$1" && pwd)/tests/conformance || exit 2
[ -x "$program" ] || exit 77
seed=${SEED:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
settings=(
    -
    SOLCCL_CPU_WAY=keep SOLCCL_CPU_WAY=pass SOLCCL_CPU_WAY=show SOLCCL_CPU_WAY=wide
    SOLCCL_CPU_PROTOCOL=line SOLCCL_CPU_PROTOCOL=packed SOLCCL_CPU_PROTOCOL=staged
    SOLCCL_CPU_PROTOCOL=direct
    SOLCCL_ISA=plain SOLCCL_ISA=avx2
    "SOLCCL_CPU_WAY=pass SOLCCL_CPU_STREAM_BYTES=0"
    "SOLCCL_CPU_CHUNK_BYTES=192 SOLCCL_CPU_ROUND_BYTES=192 SOLCCL_CPU_PIECE_BYTES=100 SOLCCL_CPU_VM_PIECE_BYTES=100"
)

n=0
for setting in "${settings[@]}"; do
    [ "$setting" != - ] || setting=
    for edge in after before; do
        while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
        log=$work/$((n += 1))
        # shellcheck disable=SC2086 # words on purpose
        (
            echo "== $setting --backend cpu-$edge --quick --seed $seed"
            env $setting "$program" --backend cpu-$edge --quick --seed "$seed" 2>&1 ||
                echo "ended with status $?" >"$log.bad"
            case $setting in # 10 MB: where results pass by the cache, and are read in pieces
            "" | *WAY=pass | *WAY=show | *WAY=wide)
                env $setting "$program" --backend cpu-$edge --ranks 2 --processes --case large 2>&1 ||
                    echo "ended with status $?" >"$log.bad"
                ;;
            esac
        ) >"$log" &
    done
done
wait
bad=0
for log in $(seq 1 $n); do
    if [ -e "$work/$log.bad" ]; then
        bad=1
        cat "$work/$log"
    else
        grep -E '^==|^[0-9]+ passed' "$work/$log"
    fi
done
exit $bad
