# SPDX-License-Identifier: Apache-2.0
# Entry points for users. CMakePresets.json defines the builds, tools/setup.sh the packages.
# `make help` prints the texts after two hashes.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

# Some shells do not expand the tilde in PREFIX=~/.local.
prefix := $(patsubst ~/%,$(HOME)/%,$(PREFIX))

SETUP := @tools/setup.sh
CONFIGURE := @tools/configure.sh
BUILD := @cmake --build --parallel $(JOBS) --preset
# One test more than processors, because some tests wait for time limits.
RUN_TESTS := ctest --output-on-failure --parallel $(shell expr $(JOBS) + 1)
CTEST := @$(RUN_TESTS) --preset

# Fuzzing of each format stops at the first limit reached; 0 means no limit.
FUZZ_RUNS ?= 3000000
FUZZ_SECONDS ?= 0

DEMO_SCENE := examples/scenes/001_your_journey.json
DEMO_PAGE := build/demo/your_journey.html

# Archer informs ThreadSanitizer of the ordering by OpenMP barriers; its library is next to libomp, two folders above
# Clang's resource folder. libomp is not instrumented, so races reported in it would be false. Before a process with
# several threads exits, ThreadSanitizer waits for races between them, by default for a second. `make check` waits for
# a twentieth: with a process per test, the seconds add up to minutes.
TSAN_ENVIRONMENT = TSAN_OPTIONS="ignore_noninstrumented_modules=1$(if $(filter tsan,$*), atexit_sleep_ms=50)" \
  OMP_TOOL_LIBRARIES="$$(clang -print-resource-dir)/../../libarcher.so"

# Read by tools/python.sh.
export PYTHON FOVEA_PYTHON
# In the source tree, so that `make clean` also removes cached objects.
export CCACHE_DIR ?= $(CURDIR)/build/ccache
# ccache compares paths relative to the build tree. build/release and build/wheel-... have the same
# depth, so they share objects, including those of the sources that CMake generates in each of them (cmake/unity.cmake).
export CCACHE_BASEDIR ?= $(CURDIR)

# Folders with C++ sources. Files are not listed with git, so that checks also work in a source archive.
SOURCE_FOLDERS := $(wildcard bench cli examples include python src tests)

# CMake options for the Python package, used if tools/python.sh succeeds.
PYTHON_SWITCHES = FOVEA_PYTHON=ON Python_EXECUTABLE=$(CURDIR)/build/python/venv/bin/python

# Configures build/release with tests, and with the Python package if possible. $(1): more options.
define configure_tests
	@tools/python.sh; case $$? in \
	  0) tools/configure.sh release FOVEA_TESTS=ON $(1) $(PYTHON_SWITCHES) ;; \
	  3) tools/configure.sh release FOVEA_TESTS=ON $(1) FOVEA_PYTHON=OFF ;; \
	  *) exit 1 ;; \
	esac
endef
PYTHON_FOLDERS := python examples/distributed examples/python examples/train tests/python tests/pages tests/view tests/mpi bench/python bench/recordings bench/view tools

# A new build tree is configured without tests, so that `make build` needs no test packages. `make test` enables
# the tests, and later builds keep this setting.
first_time = $(if $(wildcard build/release/build.ninja),,FOVEA_TESTS=OFF)

.DEFAULT_GOAL := build
.PHONY: build setup demo test test-cpp test-python test-arm test-cpus wheel test-wheel check check-full check-format check-release \
  check-python check-wheel build-asan-ubsan build-asan-ubsan-full build-tsan build-tsan-full check-asan-ubsan check-asan-ubsan-full \
  check-tsan check-tsan-full coverage test-peers test-pages test-view test-mpi fuzz bench bench-peers install clean help
# Targets share build trees, so they run one after another. Each target runs its own jobs in parallel.
.NOTPARALLEL:

build: ## Build the libraries, build/release/fovea and fovea-bench (the default)
	$(SETUP) build
	$(CONFIGURE) release $(first_time)
	$(BUILD) release

setup: ## Install all Debian packages that the targets need
	$(SETUP) build test check pages bench arm cpus cover roots mpi

demo: ## Explain a sentence as text and as a page in build/demo, and run attention over 16,384 tokens
	$(SETUP) build
	$(CONFIGURE) release $(first_time)
	$(BUILD) release --target fovea_cli fovea_bench
	@build/release/fovea explain $(DEMO_SCENE)
	@mkdir -p build/demo
	@build/release/fovea explain $(DEMO_SCENE) --format html --output $(DEMO_PAGE)
	@printf '\nThe same as a page, every step to click through:\n  %s\n' "$(CURDIR)/$(DEMO_PAGE)"
	@printf 'In a browser:\n  file://%s\n' "$$(echo "$(CURDIR)/$(DEMO_PAGE)" | sed 's/ /%20/g')"
	@printf '\nAttention over 16,384 tokens, checked against the reference:\n'
	@build/release/fovea-bench --q-len 16384 --repeat 3

test: ## Build everything and run all tests; only the C++ tests if there is no Python 3.11
	$(SETUP) build test
	$(call configure_tests)
	$(BUILD) release
	$(CTEST) release
	@grep '^ONNX ' build/release/Testing/Temporary/LastTest.log || true

test-cpp: ## Build without the Python package and run the remaining tests
	$(SETUP) build test
	$(CONFIGURE) release FOVEA_TESTS=ON FOVEA_PYTHON=OFF
	$(BUILD) release
	$(CTEST) release

test-python: ## Build the Python package and run its tests
	$(SETUP) build test
	@tools/python.sh
	$(CONFIGURE) release $(first_time) $(PYTHON_SWITCHES)
	$(BUILD) release --target fovea_package
	@PYTHONPATH=$(CURDIR)/build/release/python build/python/venv/bin/python -B -m pytest

test-arm: ## Cross-compile for 64-bit ARM in build/arm, and run the faster tests under emulation
	$(SETUP) build test arm
	@JOBS=$(JOBS) tools/arm.sh

test-cpus: ## Run examples and fast tests on emulated CPUs of AMD and Intel without AVX-512 and AMX
	$(SETUP) build test cpus
	$(CONFIGURE) release FOVEA_TESTS=ON
	$(BUILD) release
	@JOBS=$(JOBS) tools/other_cpus.sh

wheel: ## Build the Python package as a wheel in build/wheel, and try it in a new environment
	$(SETUP) build test
	@tools/python.sh
	@build/python/venv/bin/python -B tools/wheel.py
	@build/python/venv/bin/python -B tests/python/try_wheel.py

test-wheel: wheel ## Try the wheel on a bare Debian 12 and a bare Debian 13 (needs root)
	$(SETUP) roots
	@build/python/venv/bin/python -B tests/python/try_wheel_debian.py

# Runs and times one part of a check. $(1): name of the part; $(2): target and variables.
part = @tools/part.sh '$(1)' $(MAKE) --no-print-directory $(2)

# The first parts of both checks: format, includes and names, then the release build, which `make test` reuses, and
# Python.
define check_plain
	$(SETUP) build test check
	$(call part,format,check-format)
	$(call part,release build,check-release)
	$(call part,Python and wheel,check-python)
endef

check: ## Check formatting and compiler warnings (GCC, Clang), test under three sanitizers, and fuzz briefly
	$(check_plain)
	$(call part,asan-ubsan build,build-asan-ubsan)
	$(call part,asan-ubsan tests,check-asan-ubsan)
	$(call part,tsan build,build-tsan)
	$(call part,tsan tests,check-tsan)
	$(call part,fuzz,fuzz FUZZ_RUNS=0 FUZZ_SECONDS=6)

check-full: ## Like check, with all SIMD targets and full sweeps under sanitizers, longer fuzzing, and test-arm
	$(check_plain)
	$(call part,asan-ubsan-full build,build-asan-ubsan-full)
	$(call part,asan-ubsan-full tests,check-asan-ubsan-full)
	$(call part,tsan-full build,build-tsan-full)
	$(call part,tsan-full tests,check-tsan-full)
	$(call part,fuzz,fuzz FUZZ_RUNS=0 FUZZ_SECONDS=120)
	$(call part,ARM,test-arm)
	$(call part,wheel on bare systems,check-wheel)

# The parts of the checks; each can also be run separately.
check-format:
	@find $(SOURCE_FOLDERS) -name '*.h' -o -name '*.cc' | sort | tr '\n' '\0' | \
	  xargs -0 clang-format --dry-run -Werror
	@python3 -B tests/includes_test.py
	@python3 -B tests/names_test.py
	@python3 -B tests/texts_test.py
	@python3 -B tools/check_scripts.py

check-release:
	$(call configure_tests,FOVEA_WERROR=ON)
	$(BUILD) release

check-python:
	@tools/python.sh; case $$? in \
	  0) build/python/venv/bin/ruff check --quiet $(PYTHON_FOLDERS) && \
	     build/python/venv/bin/ruff format --quiet --diff $(PYTHON_FOLDERS) && \
	     build/python/venv/bin/python -B tools/wheel.py && \
	     build/python/venv/bin/python -B tests/python/try_wheel.py ;; \
	  3) ;; \
	  *) exit 1 ;; \
	esac

# Skips the wheel if there is no Python package; check-python has printed the reason.
check-wheel:
	$(SETUP) roots
	@tools/python.sh >/dev/null; case $$? in \
	  0) build/python/venv/bin/python -B tests/python/try_wheel_debian.py ;; \
	  3) ;; \
	  *) exit 1 ;; \
	esac

build-asan-ubsan build-asan-ubsan-full build-tsan build-tsan-full: build-%:
	$(CONFIGURE) $*
	$(BUILD) $*

check-asan-ubsan check-asan-ubsan-full: check-%: build-%
	@LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp $(RUN_TESTS) --preset $*

check-tsan check-tsan-full: check-%: build-%
	@$(TSAN_ENVIRONMENT) $(RUN_TESTS) --preset $* \
	  --tests-regex '^unit\.' --no-tests=error

coverage: ## Run the tests with line coverage, and print the share of src/ and include/ that they execute
	$(SETUP) build test cover
	$(CONFIGURE) coverage
	$(BUILD) coverage
	@find build/coverage -name '*.gcda' -delete
	$(CTEST) coverage
	@gcovr --root . --object-directory build/coverage --filter src/ --filter include/ \
	  --output build/coverage/lines.txt -j $(JOBS)
	@tail -n 3 build/coverage/lines.txt

test-peers: ## Compare results with PyTorch and JAX (installs 1.6 GB once), and tensor files with NumPy
	$(SETUP) build test
	@tools/python.sh; case $$? in \
	  0) tools/configure.sh release $(first_time) $(PYTHON_SWITCHES) && \
	     cmake --build --parallel $(JOBS) --preset release --target fovea_files_shared fovea_cli fovea_package && \
	     build/python/venv/bin/python -B tests/peers/run ;; \
	  3) tools/configure.sh release $(first_time) && \
	     cmake --build --parallel $(JOBS) --preset release --target fovea_files_shared fovea_cli && \
	     tests/peers/run --without-package ;; \
	  *) exit 1 ;; \
	esac

test-pages: ## Test the pages of `fovea explain` in Chromium: keyboard, phone, accessibility, every number
	$(SETUP) build pages
	$(CONFIGURE) release $(first_time)
	$(BUILD) release --target fovea_cli
	@tests/pages/run

test-view: ## Test `fovea view` in Chromium, with Python's fovea.view if there is Python 3.11
	$(SETUP) build test pages
	@tools/python.sh; case $$? in \
	  0) tools/configure.sh release $(first_time) $(PYTHON_SWITCHES) && \
	     cmake --build --parallel $(JOBS) --preset release --target fovea_cli fovea_package ;; \
	  3) tools/configure.sh release $(first_time) && \
	     cmake --build --parallel $(JOBS) --preset release --target fovea_cli ;; \
	  *) exit 1 ;; \
	esac
	@tests/view/run

test-mpi: ## Test attention over MPI with 2, 3, 4 and 7 processes of this machine, from Python with mpi4py
	$(SETUP) build test mpi
	$(call configure_tests,FOVEA_MPI=ON)
	$(BUILD) release --target fovea_mpi_tests fovea_cli \
	  $$(grep -q '^FOVEA_PYTHON:BOOL=ON' build/release/CMakeCache.txt && echo fovea_package)
	@tests/mpi/run

fuzz: ## Fuzz the file readers under sanitizers
	$(SETUP) build check
	$(CONFIGURE) fuzz
	$(BUILD) fuzz
	@FUZZ_RUNS=$(FUZZ_RUNS) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run

bench: ## Build and run the benchmarks, save the results and write their tables
	$(SETUP) build bench
	$(CONFIGURE) release $(first_time) FOVEA_BENCH=ON
	$(BUILD) release --target bench

bench-peers: build ## Compare speed with PyTorch, ONNX Runtime and JAX (installs them into build/peers)
	@bench/peers/run
	@python3 bench/report.py

install: build ## Install under PREFIX (default /usr/local), with DESTDIR prepended if set
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(prefix)"

clean: ## Remove all build results
	@rm -rf build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  JOBS=N               build with N processes, test with N + 1 (default: one per processor)"
	@echo "  FUZZ_RUNS=N          files per format for make fuzz (default: 3000000; 0: no limit)"
	@echo "  FUZZ_SECONDS=N       time limit per format for make fuzz (default: 0, no limit)"
	@echo "  FOVEA_PYTHON=0       omit the Python package in make test; PYTHON=... selects the Python interpreter"
	@echo "  PREFIX=DIR           installation prefix of make install"
	@echo "  FOVEA_SKIP_SETUP=1   do not install packages; use the tools and libraries already installed"
