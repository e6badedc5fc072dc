# SPDX-License-Identifier: Apache-2.0
#
# A front for CMake (CMakeLists.txt, CMakePresets.json): what people type.
#
#   make            build the library and the solccl command into build/release
#   make test       install what is missing, then run everything CI runs
#   make bench      install what is missing, then the main benchmark, table and report
#   make install    into PREFIX (/usr/local), honouring DESTDIR
#   make lint       formatting and static analysis alone
#   make test-gpu   conformance and perf on this machine's GPUs
#   make proofs     the protocols, model-checked exhaustively, and their mutants
#   make clean
PREFIX ?= /usr/local
GENERATOR := $(shell command -v ninja >/dev/null 2>&1 && echo -G Ninja)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

all: build/release/CMakeCache.txt
	@cmake --build build/release -j $(JOBS)

build/release/CMakeCache.txt:
	@scripts/install-deps.sh build
	@generator="$(GENERATOR)"; command -v ninja >/dev/null 2>&1 && generator="-G Ninja"; \
	    cmake --preset release $$generator -DCMAKE_INSTALL_PREFIX="$(PREFIX)"

test:
	@scripts/run-tests.sh

bench:
	@scripts/install-deps.sh bench
	@[ ! -f build/release/CMakeCache.txt ] || cmake build/release >/dev/null # (MPI may be new)
	@$(MAKE) --no-print-directory all
	@bench/run.sh

install: all
	@cmake --install build/release --prefix "$(PREFIX)"

lint:
	@scripts/install-deps.sh lint
	@scripts/lint.sh

test-gpu:
	@scripts/test-gpu.sh

proofs:
	@scripts/install-deps.sh proofs
	@proofs/run.sh

clean:
	@rm -rf build

.PHONY: all test bench install lint test-gpu proofs clean
