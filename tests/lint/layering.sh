#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# layering.sh: who may include whom (docs/hacking.md):
#   base <- proto <- coll <- core <- backend, device;  tools, examples, conformance: include/ only.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0

allow() { # allow FOLDER "LAYER ...": files of FOLDER include only these layers of src/
    local folder=$1 layers=$2 bad
    [ -d "$folder" ] || return 0
    bad=$(grep -rnoE '#[[:space:]]*include[[:space:]]*"[^"]+"' "$folder" \
        --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' |
        awk -v layers="$layers" '
            BEGIN { n = split(layers, l, " "); for (i = 1; i <= n; i++) ok[l[i]] = 1 }
            {
                path = $0; sub(/.*"/, "", path) # (strips to the closing quote)
                path = $0; sub(/^[^"]*"/, "", path); sub(/".*/, "", path)
                split(path, part, "/")
                if (!(part[1] in ok) && index(path, "/") > 0) print
            }')
    if [ -z "$bad" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $folder may include only: $layers"
        echo "$bad"
    fi
}
allow include "solccl"
allow src/base "solccl base"
allow src/proto "solccl base proto"
allow src/coll "solccl base proto coll"
allow src/core "solccl base proto coll core"
allow src/backend/shm "solccl base proto coll core backend"
allow src/backend/cuda "solccl base proto coll core backend device"
allow src/device "solccl base proto coll device"
allow src/dropin "solccl base proto coll core dropin"
allow tests/dropin "solccl common dropin"
allow tools "solccl tools"
allow examples "solccl"
allow tests/conformance "solccl common conformance"
allow tests/faults "solccl common faults"
allow tests/matrix "solccl common matrix"

# A backend does not know another one.
check_absent() { # check_absent NAME PATTERN FOLDER...
    if grep -rnE "$2" "${@:3}" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh'; then
        failed=$((failed + 1))
        echo "FAILED: $1"
    else
        passed=$((passed + 1))
    fi
}
check_absent "shm includes cuda" '#include "(backend/cuda|device)/' src/backend/shm
check_absent "core includes a backend" '#include "backend/' src/core

# The built-in kernels stand on the device API: on its words, waits, vectors and arithmetic, and on
# src/device/prim, which does. (The order of sol_vocab_topk's keys is CPU ranks' too: coll/vocab.h.)
check_absent "a kernel includes more than the device API" \
    '#include "(base|proto|core|backend|emu|coll/([^v]|v[^o]))' "src/device/kernels/"*.cuh
check_absent "a primitive includes more than protocols" '#include "(base|core|backend|emu|coll)/' src/device/prim
check_absent "memory is accessed past the device API" \
    '(^|[^a-z_])asm[^a-z_]|__threadfence|__ld[a-z]+\(|__st[a-z]+\(|cuda::|cooperative_groups|__nanosleep' src/device
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
