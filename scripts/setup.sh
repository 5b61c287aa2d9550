#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing Octile need and is missing. Does nothing, quickly, where all is there.
#   scripts/setup.sh          compiler, CMake, libraries, and a Python environment in .venv for the tests' oracles
#   scripts/setup.sh test     NVRTC as well, from PyPI, where no CUDA toolkit is, an emulator of older CPUs, and two MPI libraries
#   scripts/setup.sh cutlass  CUTLASS's headers as well, from PyPI; nvcc is not installed
#   scripts/setup.sh python   what `pip install .` and its tests need as well
#   scripts/setup.sh browser  Chromium and what drives it as well, for the test of HTML reports
#   scripts/setup.sh lint     clang-format-19, clang-tidy-19, ruff and mypy as well
#   scripts/setup.sh fuzz     clang 19 with libFuzzer as well
set -eu
cd "$(dirname "$0")/.."

packages="g++ cmake ninja-build pkg-config libcli11-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libdnnl-dev libhwloc-dev
libgtest-dev libgmock-dev libbenchmark-dev libxxhash-dev node-d3 python3 python3-venv"
if [ "${1:-}" = test ]; then
  packages="$packages librapidcheck-dev qemu-user libopenmpi-dev openmpi-bin libmpich-dev mpich"
fi
if [ "${1:-}" = python ]; then
  packages="$packages python3-dev python3-pip ccache"
fi
if [ "${1:-}" = browser ]; then
  packages="$packages chromium chromium-driver"
fi
if [ "${1:-}" = lint ]; then
  packages="$packages clang-format-19 clang-tidy-19"
fi

if [ "${1:-}" = fuzz ]; then
  packages="$packages clang-19 libclang-rt-19-dev"
fi

if command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
  missing=""
  for package in $packages; do
    state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
  done
  if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
      as_root=""
    elif command -v sudo >/dev/null 2>&1; then
      as_root="sudo"
    else
      echo "setup: these Debian packages are missing and need root or sudo to install:$missing" >&2
      exit 1
    fi
    echo "setup: installing$missing" >&2
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    # shellcheck disable=SC2086  # The list is meant to be split.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null
  fi
else
  lacking=""
  for tool in g++ cmake ninja pkg-config python3; do
    command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
  done
  for header in CLI/CLI.hpp nlohmann/json.hpp fmt/core.h spdlog/spdlog.h gtest/gtest.h gmock/gmock.h xxhash.h; do
    if command -v g++ >/dev/null 2>&1 && ! echo "#include <$header>" | g++ -std=c++23 -E -x c++ - >/dev/null 2>&1; then
      lacking="$lacking $header"
    fi
  done
  if [ -n "$lacking" ]; then
    echo "setup: this is no Debian-like system, so nothing is installed here; it lacks:$lacking" >&2
    echo "setup: the Debian names of what is needed: $packages" >&2
    exit 1
  fi
fi

# The oracles of the tests come from PyPI, into an environment of the project's own.
if ! .venv/bin/python3 -c 'import ml_dtypes, numpy' >/dev/null 2>&1; then
  echo "setup: making .venv with the packages of tests/requirements.txt" >&2
  python3 -m venv --clear .venv
  .venv/bin/python3 -m pip install -q --disable-pip-version-check -r tests/requirements.txt
fi

if [ "${1:-}" = browser ] && ! .venv/bin/python3 -c 'import selenium' >/dev/null 2>&1; then
  .venv/bin/python3 -m pip install -q --disable-pip-version-check -r tests/browser/requirements.txt
fi

if [ "${1:-}" = lint ] && ! .venv/bin/python3 -c 'import mypy, ruff' >/dev/null 2>&1; then
  .venv/bin/python3 -m pip install -q --disable-pip-version-check -r scripts/requirements.txt
fi

# Device code is compiled in the tests, by NVRTC. Without it, and without this wheel, those tests are skipped.
has_nvrtc() {
  for library in /usr/local/cuda*/lib64/libnvrtc.so* /usr/lib/x86_64-linux-gnu/libnvrtc.so* \
    .venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so*; do
    [ -e "$library" ] && return 0
  done
  return 1
}
if [ "${1:-}" = test ] && ! has_nvrtc; then
  echo "setup: no CUDA toolkit: installing the wheel nvidia-cuda-nvrtc for the tests of device code" >&2
  .venv/bin/python3 -m pip install -q --disable-pip-version-check nvidia-cuda-nvrtc ||
    echo "setup: it cannot be installed here: tests that compile device code are skipped" >&2
fi

# The headers of the optional CUTLASS component (`make cutlass`).
if [ "${1:-}" = cutlass ] && ! ls .venv/lib/python3*/site-packages/cutlass_library/source/include/cutlass/version.h >/dev/null 2>&1; then
  echo "setup: installing CUTLASS's headers, the package of src/components/cutlass/requirements.txt" >&2
  # Its Python dependencies are for other uses of it.
  .venv/bin/python3 -m pip install -q --disable-pip-version-check --no-deps -r src/components/cutlass/requirements.txt
fi
