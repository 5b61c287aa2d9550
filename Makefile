# SPDX-License-Identifier: Apache-2.0
# A thin front over CMake. `make run` does the main job, `make test` runs every test; both install what is missing first.
.PHONY: help setup build command cutlass run test test-python test-browser fuzz dist sbom bench lint format install clean

PRESET ?= release
JOBS ?= $(shell nproc)
MODEL ?= qwen3-8b
DEVICE ?= cpu
PREFIX ?= /usr/local
REPORT ?= octile-report.json
PAGE ?= $(basename $(REPORT)).html
# Where `make run` writes tile tables: empty means the user's data directory, where the library finds them by itself.
TABLES ?=
# For test-python: install, try, or empty.
TORCH ?=
# For fuzz: seconds for each program; KEEP=keep adds what is new to the corpora.
SECONDS_EACH ?= 30
KEEP ?=

OCTILE := build/$(PRESET)/bin/octile
TABLES_OPTION := $(if $(TABLES),--tables $(TABLES))

help:
	@echo "make run      build, tune $(MODEL) on $(DEVICE) (60 s), bench it (60 s), write $(REPORT) and $(PAGE)"
	@echo "make test     build and run every test"
	@echo "make test-python  install the Python package into an environment in build/ and test it; TORCH=install with PyTorch"
	@echo "make test-browser  look at HTML reports with Chromium; pictures in build/$(PRESET)/report-pages"
	@echo "make fuzz     fuzz every reader of foreign data for SECONDS_EACH=$(SECONDS_EACH) s each (clang 19)"
	@echo "make bench    bench with the tables in force"
	@echo "make lint     clang-format-19 and clang-tidy-19, ruff and mypy"
	@echo "make format   let clang-format-19 rewrite the sources"
	@echo "make install  install into PREFIX=$(PREFIX)"
	@echo "make cutlass  build the CUTLASS component for sm_89 and sm_120 as well (needs nvcc of CUDA 12.8 or newer)"
	@echo "make dist     the release archive of HEAD in build/dist; one commit always gives the same bytes"
	@echo "make sbom     a CycloneDX bill of materials in build/$(PRESET)/octile.cdx.json"
	@echo "make setup | build | clean"
	@echo "variables: PRESET MODEL DEVICE TABLES REPORT PAGE PREFIX JOBS TORCH SECONDS_EACH KEEP"

setup:
	@scripts/setup.sh

build: setup
	@cmake --preset $(PRESET) --log-level=NOTICE
	@cmake --build --preset $(PRESET) -j $(JOBS)

# The command and what it loads, without the tests.
command: setup
	@cmake --preset $(PRESET) --log-level=NOTICE
	@cmake --build --preset $(PRESET) -j $(JOBS) --target octile_cli octile_onednn octile

# The component stays part of this preset's builds until it is configured with -DOCTILE_CUTLASS=OFF.
cutlass:
	@scripts/setup.sh cutlass
	@cmake --preset $(PRESET) --log-level=NOTICE -DOCTILE_CUTLASS=ON
	@cmake --build --preset $(PRESET) -j $(JOBS) --target octile_cutlass octile_cli octile

run: command
	$(OCTILE) tune --model $(MODEL) --device $(DEVICE) --time-budget 60s $(TABLES_OPTION)
	$(OCTILE) bench --model $(MODEL) --device $(DEVICE) --time-budget 60s $(TABLES_OPTION) --json $(REPORT) --html $(PAGE)
	@echo "wrote $(REPORT) and $(PAGE)"

test:
	@scripts/setup.sh test
	@cmake --preset $(PRESET) --log-level=NOTICE
	@cmake --build --preset $(PRESET) -j $(JOBS)
	@ctest --preset $(PRESET)

# What `pip install .` gives, in an environment in build/. TORCH=install brings PyTorch (gigabytes) for the tests that need
# it; without it they are skipped unless it is there.
test-python:
	@scripts/setup.sh python
	@scripts/test_python.sh $(TORCH)

# HTML reports in a real browser.
test-browser: command
	@scripts/setup.sh browser
	@.venv/bin/python3 tests/browser/report_page_test.py $(OCTILE) . --require --screenshots build/$(PRESET)/report-pages

# libFuzzer on everything that reads what others wrote; `make fuzz SECONDS_EACH=600` for a night.
fuzz:
	@scripts/setup.sh fuzz
	@cmake --preset asan --log-level=NOTICE
	@cmake --build --preset asan -j $(JOBS) --target fuzz_programs
	@JOBS=$(JOBS) scripts/fuzz.sh $(SECONDS_EACH) $(KEEP)

dist:
	@scripts/dist.sh

sbom:
	@mkdir -p build/$(PRESET)
	@scripts/sbom.py build/$(PRESET)/octile.cdx.json
	@echo "wrote build/$(PRESET)/octile.cdx.json"

bench: command
	$(OCTILE) bench --model $(MODEL) --device $(DEVICE) $(TABLES_OPTION)

lint:
	@scripts/setup.sh lint
	@cmake --preset $(PRESET) --log-level=NOTICE
	@cmake --build --preset $(PRESET) -j $(JOBS)
	@scripts/lint.sh build/$(PRESET)

format:
	@scripts/setup.sh lint
	@git ls-files '*.h' '*.hpp' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs clang-format-19 -i

install: build
	@cmake --install build/$(PRESET) --prefix $(PREFIX)

clean:
	@rm -rf build
