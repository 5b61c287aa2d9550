#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ruff and mypy, clang-format-19 and clang-tidy-19 over every tracked source; $1 is a configured build folder.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
if ! .venv/bin/python3 -c 'import mypy, ruff' >/dev/null 2>&1; then
  echo "lint: ruff and mypy are not in .venv: scripts/setup.sh lint installs them" >&2
  exit 1
fi
git ls-files '*.py' | xargs .venv/bin/ruff check -q
git ls-files '*.py' | xargs .venv/bin/ruff format -q --check --force-exclude
.venv/bin/mypy --no-error-summary
echo "lint: Python is clean"
git ls-files '*.h' '*.hpp' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs clang-format-19 --dry-run -Werror
echo "lint: format is clean"
# Device text (.cuh) is NVRTC's: clang-tidy reads host files only, those that the build compiles.
git ls-files 'src/*.cpp' 'tests/*.cpp' 'bench/*.cpp' | while read -r file; do
  grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" && echo "$file"
done | xargs -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p "$build"
echo "lint: clang-tidy is clean"
