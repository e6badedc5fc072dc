#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [numpy|fast|fast-asan|torch|wheel]...: the Python package over the libraries of BUILD: with NumPy on CPU
# ranks, with and without the extension, the backend of torch.distributed against Gloo, and the wheel in an environment that is empty
# but for NumPy. A part whose packages are not there is skipped; TORCH_PYTHON names a Python that has
# PyTorch. Prints the sum of cases.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
shift
parts=${*:-numpy fast fast-asan torch wheel}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0
. tests/check.sh
export SOLCCL_TIMEOUT_MS=60000 PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

# The first Python that can import all modules named.
python_with() {
    local candidate
    for candidate in ${TORCH_PYTHON:+"$TORCH_PYTHON"} python3 /usr/bin/python3; do
        if "$candidate" -c "import $1" >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    echo "   (no Python has $1: skipped)" >&2
    return 1
}
add() { # add LOG CODE: shows it; its last sum counts, or a failure
    local p f
    cat "$1"
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$1" | tail -n 1)
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
    if [ "$2" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then
        failed=$((failed + 1))
        echo "FAILED: status $2"
    fi
}
part() { case " $parts " in *" $1 "*) return 0 ;; esac; return 1; }

if part numpy; then
    if python=$(python_with numpy); then
        for n in 2 3; do
            echo "== numpy, $n ranks, extension: $((3 - n))"
            SOLCCL_PYTHON_FAST=$((3 - n)) SOLCCL_LIBRARY=$build/libsolccl.so timeout 120 "$build/bin/solccl" run -n $n \
                "$python" tests/python/numpy_ranks.py >"$work/out" 2>&1
            code=$?
            grep -v ' warn: ' "$work/out" >"$work/shown"
            add "$work/shown" $code
        done
        # Into a pipe that nobody reads any more: ended by the signal, and no traceback.
        check "a reader that leaves" env SOLCCL_LIBRARY="$build/libsolccl.so" "$python" -c '
import os, signal, subprocess, sys
gone, out = os.pipe()
os.close(gone)
ended = subprocess.run([sys.executable, "-m", "solccl", "info"], stdout=out, stderr=subprocess.PIPE)
sys.exit(ended.stderr != b"" or ended.returncode != -signal.SIGPIPE)'
        echo "== a rank that raises"
        SOLCCL_LIBRARY=$build/libsolccl.so timeout 60 "$python" tests/python/raising_rank.py >"$work/out" 2>&1
        add "$work/out" $?
    else
        skipped=$((skipped + 1))
    fi
fi
if part fast; then
    # One with PyTorch, if there is one: both kinds of arrays are asked about.
    if [ -e "$build/_fast.abi3.so" ] && python=$(python_with numpy,torch 2>/dev/null || python_with numpy) &&
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        for on in 1 0; do
            echo "== extension: $on"
            SOLCCL_PYTHON_FAST=$on SOLCCL_LIBRARY=$build/libsolccl.so timeout 120 "$build/bin/solccl" run -n 2 \
                "$python" -W ignore tests/python/fast_ranks.py "$work/said.$on" >"$work/out" 2>&1
            code=$?
            grep -v ' warn: ' "$work/out" >"$work/shown"
            add "$work/shown" $code
        done
        check "errors are the same in both ways" diff "$work/said.0" "$work/said.1"
        SOLCCL_PYTHON_FAST=yes SOLCCL_LIBRARY=$build/libsolccl.so "$python" -c 'import solccl' 2>"$work/out"
        mkdir "$work/here" && cp "$build/_fast.abi3.so" "$work/here"
        check "none is taken from the working directory" env -C "$work/here" LD_LIBRARY_PATH="$build" \
            SOLCCL_LIBRARY=libsolccl.so.0 "$python" -c 'from solccl._library import fast; assert fast is None'
        # As `cmake --install` lays them: found where the loader has found the library. Not from a folder
        # that all can write, nor where the loader was told of a folder relative to the present one.
        libdir=$work/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")
        cmake --install "$build" --prefix "$work" >/dev/null
        check "it is installed" test -f "$libdir/solccl/_fast.abi3.so"
        from='from solccl._library import fast; import sys; sys.exit((fast.__file__ if fast else "") != sys.argv[1])'
        check "the installed one is found" env -C / -u SOLCCL_LIBRARY LD_LIBRARY_PATH="$libdir" \
            "$python" -c "$from" "$libdir/solccl/_fast.abi3.so"
        check "beside a library by name too" env SOLCCL_LIBRARY="$libdir/libsolccl.so" \
            "$python" -c "$from" "$libdir/solccl/_fast.abi3.so"
        check "not by way of a relative folder" env -C "$libdir" -u SOLCCL_LIBRARY LD_LIBRARY_PATH=. \
            "$python" -c "$from" ""
        chmod o+w "$libdir/solccl"
        check "not from a folder that all can write" env -u SOLCCL_LIBRARY LD_LIBRARY_PATH="$libdir" \
            "$python" -c "$from" ""
        chmod o-w "$libdir/solccl"
        if [ "$(id -u)" -eq 0 ]; then # (what a stranger has put there)
            chown 65534 "$libdir/solccl/_fast.abi3.so"
            check "not another user's file" env -u SOLCCL_LIBRARY LD_LIBRARY_PATH="$libdir" \
                "$python" -c "$from" ""
        fi
        check "another value is refused" grep -q "SOLCCL_PYTHON_FAST is 'yes': expected 0 or 1" "$work/out"
    else
        echo "   (the extension was not built: skipped)" >&2
        skipped=$((skipped + 1))
    fi
fi
# The extension alone under sanitizers, in an ordinary Python, with its allocations from malloc.
if part fast-asan; then
    asan=$(gcc -print-file-name=libasan.so 2>/dev/null):$(gcc -print-file-name=libubsan.so 2>/dev/null)
    include=
    if python=$(python_with numpy) && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    fi
    if [ -n "$include" ] && [ -e "$include/Python.h" ] && [ -e "${asan%%:*}" ] && [ -e "${asan##*:}" ]; then
        echo "== extension under sanitizers"
        mkdir "$work/asan" && cp "$build/libsolccl.so" "$work/asan"
        check "it is compiled" gcc -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
            -fno-sanitize-recover=all -shared -fPIC -DPy_LIMITED_API=0x030B0000 -Iinclude "-I$include" \
            python/fast.c -o "$work/asan/_fast.abi3.so"
        # (Python itself leaves memory behind: leaks are looked for by counts, in fast_ranks.py)
        timeout 240 "$build/bin/solccl" run -n 2 env LD_PRELOAD="$asan" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
            SOLCCL_LIBRARY="$work/asan/libsolccl.so" "$python" -W ignore tests/python/fast_ranks.py "$work/said.asan" \
            >"$work/out" 2>&1
        code=$?
        grep -v ' warn: ' "$work/out" >"$work/shown"
        add "$work/shown" $code
    else
        skipped=$((skipped + 1))
    fi
fi
if part torch; then
    if python=$(python_with torch,numpy); then
        for on in 1 0; do
            echo "== torch, 3 ranks, extension: $on"
            mkdir "$work/torch.$on"
            SOLCCL_PYTHON_FAST=$on SOLCCL_LIBRARY=$build/libsolccl.so timeout 300 "$build/bin/solccl" run -n 3 \
                "$python" -W ignore tests/python/torch_ranks.py "$work/torch.$on" >"$work/out" 2>&1
            add "$work/out" $?
        done
        echo "== a rank that raises"
        SOLCCL_LIBRARY=$build/libsolccl.so timeout 90 "$python" -W ignore tests/python/raising_rank.py torch \
            >"$work/out" 2>&1
        add "$work/out" $?
    else
        skipped=$((skipped + 1))
    fi
fi
if part wheel; then
    if python=$(python_with numpy,ensurepip); then
        echo "== wheel"
        unset PYTHONPATH
        check "it is packed" "$python" python/build_wheel.py "$build" "$work/wheel"
        sum=$(cat "$work"/wheel/*.whl | sha256sum)
        check "an environment" "$python" -m venv "$work/env"
        check "pip install" "$work/env/bin/pip" install --no-index --no-deps --quiet "$work"/wheel/solccl-*.whl
        # (NumPy is where this Python has it, which need not be the system's)
        numpy=$("$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))')
        check "the example" env PYTHONPATH="$numpy" "$build/bin/solccl" run -n 2 "$work/env/bin/python" examples/python/all_reduce.py
        check "what it is" "$work/env/bin/python" -m solccl
        if compgen -G "$work/wheel/*-abi3-*" >/dev/null; then
            check "the extension is in it" "$work/env/bin/python" -c 'from solccl._library import fast; assert fast'
        fi
        mkdir "$work/bare" && cp -L "$build/libsolccl.so" "$work/bare"
        check "a wheel without it" "$python" python/build_wheel.py "$work/bare" "$work/bare/wheel"
        check "is for every Python 3" compgen -G "$work/bare/wheel/solccl-*-py3-none-*.whl"
        if [ -e "$build/libsolccl-nccl.so" ]; then
            check "where the drop-in is" test -f "$("$work/env/bin/python" -m solccl nccl)"
        fi
        "$python" python/build_wheel.py "$build" "$work/wheel" >/dev/null
        check "the same bytes again" test "$sum" = "$(cat "$work"/wheel/*.whl | sha256sum)"
    else
        skipped=$((skipped + 1))
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
