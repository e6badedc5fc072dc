# SPDX-License-Identifier: Apache-2.0
#
# A front for CMake (CMakeLists.txt, CMakePresets.json): what people type.
#
#   make            build the library and the solccl command into build/release
#                   CUDA=off: without GPU ranks; ARCHS=90: for these GPU architectures only
#   make test       install what is missing, then run everything CI runs
#   make bench      install what is missing, then the main benchmark, table and report
#   make install    into PREFIX (/usr/local), honouring DESTDIR
#   make wheel      the Python package with the libraries in it, into build/wheel
#   make lint       formatting and static analysis alone
#   make test-gpu   conformance and perf on this machine's GPUs
#   make fuzz       the fuzzers, SECONDS=60 each, with clang
#   make mutants    every planted fault in the kernels, shown to the emulator (make test: a tenth)
#   make emu-conformance  the conformance suite on emulated GPUs, 2 to 4 ranks (make test: a slice)
#   make proofs     the protocols, model-checked exhaustively, and their mutants
#   make clean
PREFIX ?= /usr/local
GENERATOR := $(shell command -v ninja >/dev/null 2>&1 && echo -G Ninja)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# From make's command line alone (CUDA is a folder in many an environment), and also for a folder
# that is configured already.
given = $(findstring command,$(origin $(1)))
OPTIONS := $(if $(call given,CUDA),-DSOLCCL_CUDA=$(CUDA)) \
    $(if $(call given,ARCHS),"-DSOLCCL_CUDA_ARCHS=$(ARCHS)")

all: build/release/CMakeCache.txt
	@$(if $(strip $(OPTIONS)),cmake build/release $(OPTIONS) >/dev/null &&) \
	    cmake --build build/release -j $(JOBS)

build/release/CMakeCache.txt:
	@scripts/install-deps.sh build
	@generator="$(GENERATOR)"; command -v ninja >/dev/null 2>&1 && generator="-G Ninja"; \
	    cmake --preset release $$generator -DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DSOLCCL_TESTS=OFF $(OPTIONS)

test:
	@scripts/run-tests.sh

# CPU ranks only: kernels for every GPU architecture would take longer to build than the job.
bench:
	@scripts/install-deps.sh bench
	@generator=; command -v ninja >/dev/null 2>&1 && generator="-G Ninja"; \
	    cmake -S . -B build/bench $$generator -DCMAKE_BUILD_TYPE=Release -DSOLCCL_CUDA=off \
	    -DSOLCCL_TESTS=OFF
	@cmake --build build/bench -j $(JOBS)
	@SOLCCL_BUILD=build/bench bench/run.sh

install: all
	@cmake --install build/release --prefix "$(PREFIX)"

wheel: all
	@python3 python/build_wheel.py build/release build/wheel

lint:
	@scripts/install-deps.sh lint
	@scripts/lint.sh

test-gpu:
	@scripts/test-gpu.sh

SECONDS ?= 60
fuzz:
	@tests/fuzz/run.sh $(SECONDS)

mutants:
	@SOLCCL_MUTANTS=all scripts/run-tests.sh dependencies build-gcc mutants device device-mutants

emu-conformance:
	@scripts/run-tests.sh dependencies build-gcc
	@cmake --build build/gcc --target emu_conformance -j $(JOBS)
	@tests/emu/conformance.sh build/gcc all

proofs:
	@scripts/install-deps.sh proofs
	@proofs/run.sh

clean:
	@rm -rf build

.PHONY: all test bench install wheel lint test-gpu fuzz mutants emu-conformance proofs clean
