#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install-deps.sh build|test|bench|lint|proofs: installs what is missing for it, through apt-get.
# Asks the package manager for nothing that is there already, so that it costs nothing on a machine
# that is ready, and needs neither network nor root there. Without apt-get it names what is missing.
set -u
goal=${1:-build}

# need PROGRAM-OR-FILE PACKAGE: remember PACKAGE if the program or file does not exist.
missing=()
optional=()
have() {
    case $1 in
    */*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}
need() { have "$1" || missing+=("$2"); }
want() { have "$1" || optional+=("$2"); }

# nvcc, and what shows machine code, for the step `kernels`: a toolkit's or those of the packages below.
cuda_tools() {
    { have nvcc || have "/usr/local/cuda*/bin/nvcc" || have "build/cuda-tools/lib/*/*/nvidia/*/bin/nvcc"; } &&
        { have cuobjdump || have "/usr/local/cuda*/bin/cuobjdump" ||
            have "build/cuda-tools/lib/*/*/nvidia/*/bin/cuobjdump"; }
}
get_cuda_tools() {
    local name packages=()
    cuda_tools && return 0
    for name in nvcc crt cuobjdump nvdisasm runtime; do
        packages+=("nvidia-cuda-$name>=13.3,<13.4")
    done
    echo "install-deps: installing nvcc and its disassembler into build/cuda-tools" >&2
    mkdir -p build && python3 -m venv build/cuda-tools >&2 &&
        build/cuda-tools/bin/pip install -q --disable-pip-version-check "${packages[@]}" \
            "nvidia-nvvm>=13.3,<13.4" >&2 ||
        echo "install-deps: they are not available here; the step that needs them does without" >&2
    return 0
}

need gcc gcc
need "/usr/include/stdlib.h" libc6-dev
need cmake cmake
need ninja ninja-build
need pkg-config pkg-config

case $goal in
test | lint)
    want clang-format-14 clang-format-14
    want clang-tidy-14 clang-tidy-14
    need cppcheck cppcheck
    ;;&
test)
    need spin spin # the proofs
    need g++ g++
    need clang clang
    need nm binutils
    need python3 python3-minimal
    need "/usr/lib/python3/dist-packages/numpy/__init__.py" python3-numpy
    need "/usr/include/python3*/Python.h" python3-dev # the Python package's extension
    need "/usr/lib/python3*/ensurepip/__init__.py" python3-venv
    need "/usr/include/cmocka.h" libcmocka-dev
    need "/usr/lib/gcc/*/*/libtsan.so" libc6-dev # (comes with gcc; named for a clear message)
    have chromium || have chromium-browser || have google-chrome || optional+=(chromium)
    cuda_tools || want "/usr/lib/python3*/ensurepip/__init__.py" python3-venv
    ;;
bench)
    # Both MPIs at once: Debian's alternatives keep mpirun.openmpi and mpirun.mpich apart.
    need mpirun.openmpi openmpi-bin
    need mpicc.openmpi libopenmpi-dev
    need mpirun.mpich mpich
    need mpicc.mpich libmpich-dev
    ;;
proofs)
    need spin spin
    ;;
build | lint) ;;
*)
    echo "usage: $0 build|test|bench|lint|proofs" >&2
    exit 2
    ;;
esac

finish() { # what needs no root comes last
    [ "$goal" != test ] || get_cuda_tools
    exit 0
}
[ ${#missing[@]} -eq 0 ] && [ ${#optional[@]} -eq 0 ] && finish

if ! command -v apt-get >/dev/null 2>&1; then
    [ ${#missing[@]} -eq 0 ] && finish
    echo "install-deps: there is no apt-get here; please install: ${missing[*]}" >&2
    exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install-deps: needs root to install: ${missing[*]} ${optional[*]}" >&2
        [ ${#missing[@]} -eq 0 ]
        exit
    fi
    root=(sudo)
fi
apt() {
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -y -qq \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# What could not be installed is not asked for again in this checkout until tomorrow.
gave_up=build/.optional-packages-unavailable
wanted=()
for package in ${optional[@]+"${optional[@]}"}; do
    if [ -n "$(find "$gave_up" -mtime -1 2>/dev/null)" ] && grep -qx "$package" "$gave_up"; then
        continue
    fi
    wanted+=("$package")
done
[ ${#missing[@]} -eq 0 ] && [ ${#wanted[@]} -eq 0 ] && finish

echo "install-deps: installing ${missing[*]} ${wanted[*]}" >&2
apt update >&2 || echo "install-deps: apt-get update failed; going on with the lists here" >&2
if [ ${#missing[@]} -gt 0 ]; then
    apt install --no-install-recommends "${missing[@]}" >&2 || {
        echo "install-deps: could not install: ${missing[*]}" >&2
        exit 1
    }
fi
for package in ${wanted[@]+"${wanted[@]}"}; do
    apt install --no-install-recommends "$package" >&2 || {
        echo "install-deps: $package is not available here; what needs it is skipped" >&2
        mkdir -p build
        echo "$package" >>"$gave_up"
    }
done
finish
