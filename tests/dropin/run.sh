#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [--path-only]: the drop-in in every way it is used, in front of the fake NCCL: named by
# path, and preloaded (which sanitizers do not allow). Prints the sum of all.
set -u
build=$(cd "$1" && pwd)
library=$build/libsolccl-nccl.so
fake=$build/tests/fake
test=$build/tests/dropin
python=$(python3 -c "import sys; print(sys.executable)") # not a script that would be preloaded too
passed=0 failed=0
export SOLCCL_DEBUG_NCCL_RANKS=cpu
add() { # add OUTPUT CODE: takes its last line's sum
    local p f
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' <<<"$1" | tail -n 1)
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    [ "$2" -eq 0 ] || [ "${f:-0}" -gt 0 ] || failed=$((failed + 1))
    grep -vE '^[0-9]+ passed' <<<"$1"
}
check() { # check NAME EXPECTED ACTUAL
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: expected %s, got %s\n' "$1" "$2" "$3"
    fi
}

echo "== named by path"
out=$(SOLCCL_NCCL_LIB=$fake/libnccl.so.2 timeout 300 "$test" --path "$library" 2>&1)
add "$out" $?
if [ "${2:-}" != --path-only ]; then
    echo "== preloaded"
    out=$(LD_LIBRARY_PATH=$fake timeout 300 env LD_PRELOAD="$library" "$test" --preloaded 2>&1)
    add "$out" $?
    # What the drop-in does not know is still there: the real library is behind it.
    LD_PRELOAD="$library $fake/libnccl.so.2" "$python" - <<'PY'
import ctypes
assert ctypes.CDLL(None).ncclFutureFunction() == 42
PY
    check "a function of a newer NCCL, preloaded" 0 $?
    # Named by path, -path has both, with the drop-in in front.
    out=$(LD_LIBRARY_PATH=$fake "$python" - "$build" 2>&1 <<'PY'
import ctypes, sys
l = ctypes.CDLL(sys.argv[1] + "/libsolccl-nccl-path.so")
own = ctypes.CDLL(sys.argv[1] + "/libsolccl-nccl.so")
address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
v = ctypes.c_int()
print(l.ncclFutureFunction(), address(l.ncclAllReduce) == address(own.ncclAllReduce),
      l.ncclGetVersion(ctypes.byref(v)), v.value)
PY
    )
    check "a function of a newer NCCL, by path" "42 True 0 22809" "$(tail -n 1 <<<"$out")"
fi
# (a sanitizer's runtime must be in the program itself, which python is not)
if [ "${2:-}" != --path-only ]; then
# Without an NCCL every call is an error, and nothing else happens.
out=$(SOLCCL_NCCL_LIB=/nowhere/libnccl.so.2 "$python" - "$library" 2>&1 <<'PY'
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
v = ctypes.c_int()
nccl.ncclGetErrorString.restype = ctypes.c_char_p
print(nccl.ncclGetVersion(ctypes.byref(v)), nccl.ncclGroupStart(), nccl.ncclGetErrorString(2).decode())
PY
)
check "no NCCL" "2 2 no NCCL was found" "$(tail -n 1 <<<"$out")"
check "no NCCL is logged" 1 "$(grep -c 'nowhere' <<<"$out")"
# In front of itself it would go round for ever.
out=$(SOLCCL_NCCL_LIB=$library "$python" - "$library" 2>&1 <<'PY'
import ctypes, sys
print(ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(ctypes.c_int())))
PY
)
check "in front of itself" 2 "$(tail -n 1 <<<"$out")"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
