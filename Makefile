# The front door. `make help` lists what there is; CONTRIBUTING.md says more.
.DEFAULT_GOAL := help
.PHONY: help demo test bench check format lint gpu-test install sanitize fuzz clean

BUILD := build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# More -D options for CMake.
CMAKE_ARGS ?=
# The compiler cache, where it is installed. CMake reads these variables when it first configures a build directory.
ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_C_COMPILER_LAUNCHER ?= ccache
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
export CMAKE_CUDA_COMPILER_LAUNCHER ?= ccache
endif

NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc))
# Compute capabilities of the GPUs in this machine, as CMake writes them: "90-real". Empty: no GPU, or no driver.
GPUS := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | grep -E '^[0-9]+$$' | sort -u | sed 's/$$/-real/' | paste -sd ';')
# What `make test` compiles the kernels for: a gate needs one architecture of each kind.
CUDA_ARCHITECTURES ?= $(if $(GPUS),$(GPUS),80-real;90-real)

# Each use asks for what it needs and no more. With no GPU in the machine, the demo compiles no CUDA code.
ifneq ($(and $(NVCC),$(GPUS)),)
USE_CUDA := -DTILEFOLD_CUDA=ON "-DTILEFOLD_CUDA_ARCHITECTURES=$(GPUS)"
else
USE_CUDA := -DTILEFOLD_CUDA=OFF
endif

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: ## build what this machine can use, run real attention, check it, time it, draw it
	@scripts/install_packages.sh demo
	@cmake -S . -B $(BUILD)/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DTILEFOLD_BUILD_TESTS=OFF $(USE_CUDA) $(CMAKE_ARGS) >$(BUILD)-demo.log 2>&1 || { cat $(BUILD)-demo.log; exit 1; }
	@rm -f $(BUILD)-demo.log
	@cmake --build $(BUILD)/demo -j $(JOBS) --target tilefold_cli
	@$(BUILD)/demo/cli/tilefold demo

test: ## build everything with warnings as errors, every kernel row too where nvcc is found, and run all tests
	@scripts/install_packages.sh test
	@cmake --preset test "-DTILEFOLD_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" $(CMAKE_ARGS)
	@cmake --build $(BUILD)/test -j $(JOBS)
	@ctest --test-dir $(BUILD)/test --output-on-failure -j $(JOBS)

bench: ## the CPU benchmark, with the machine's own peak beside it; the GPU ladder where there is one
	@scripts/install_packages.sh bench
	@cmake -S . -B $(BUILD)/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DTILEFOLD_BUILD_TESTS=OFF -DTILEFOLD_BUILD_BENCH=ON $(USE_CUDA) $(CMAKE_ARGS)
	@cmake --build $(BUILD)/bench -j $(JOBS)
	@$(BUILD)/bench/bench/tilefold_cpu_bench
	@if [ -n "$(GPUS)" ] && [ -x $(BUILD)/bench/bench/ladder/tilefold_ladder ]; then $(BUILD)/bench/bench/ladder/tilefold_ladder; fi

check: ## what needs no running: format, lint, wording, the tables of GPU figures, and the record of the GPU runs
	@scripts/install_packages.sh check
	@scripts/check_format.sh
	@scripts/check_words.sh
	@python3 bench/tables.py --check
	@if [ -f tests/gpu/check_record.py ]; then python3 tests/gpu/check_record.py; fi
	@$(MAKE) --no-print-directory lint

lint: ## clang-tidy on the host code
	@scripts/install_packages.sh check demo
	@cmake -S . -B $(BUILD)/lint -G Ninja -DTILEFOLD_CUDA=OFF -DTILEFOLD_BUILD_TESTS=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
	@scripts/lint.sh $(BUILD)/lint $(JOBS)

format: ## clang-format on every file of ours
	@scripts/install_packages.sh check
	@scripts/check_format.sh --fix

gpu-test: ## the device tests and the Python tests on this machine's GPU; writes tests/gpu/record.json
	@[ -n "$(GPUS)" ] || { echo "gpu-test: there is no NVIDIA GPU here (nvidia-smi shows none)"; exit 1; }
	@[ -n "$(NVCC)" ] || { echo "gpu-test: nvcc is not on PATH nor in /usr/local/cuda/bin"; exit 1; }
	@scripts/install_packages.sh test
	@cmake --preset test "-DTILEFOLD_CUDA_ARCHITECTURES=$(GPUS)" $(CMAKE_ARGS)
	@cmake --build $(BUILD)/test -j $(JOBS) --target tilefold_gpu_tests
	@python3 tests/gpu/run_gpu_tests.py $(BUILD)/test/tests/gpu/tilefold_gpu_tests
	@python3 tests/gpu/run_python_tests.py --architectures "$(GPUS)"

sanitize: ## the contract and the file readers under ASan + UBSan, what is threaded under TSan
	@scripts/install_packages.sh test fuzz
	@scripts/sanitize.sh $(JOBS)

fuzz: ## the libFuzzer targets, FUZZ_SECONDS each (20)
	@scripts/install_packages.sh test fuzz
	@scripts/fuzz.sh $(JOBS)

install: ## build for this machine and install under PREFIX (/usr/local)
	@scripts/install_packages.sh demo
	@cmake -S . -B $(BUILD)/install -G Ninja -DCMAKE_BUILD_TYPE=Release -DTILEFOLD_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(USE_CUDA) $(CMAKE_ARGS)
	@cmake --build $(BUILD)/install -j $(JOBS)
	@cmake --install $(BUILD)/install

clean: ## remove the build directories that these targets made
	@rm -rf $(addprefix $(BUILD)/,demo test bench lint install asan tsan)
