#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format-19 and clang-tidy-19 over every tracked source; $1 is a configured build folder.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
git ls-files '*.h' '*.hpp' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs clang-format-19 --dry-run -Werror
echo "lint: format is clean"
# Device text (.cuh) is NVRTC's: clang-tidy reads host files only, those that the build compiles.
git ls-files 'src/*.cpp' 'tests/*.cpp' 'bench/*.cpp' | while read -r file; do
  grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" && echo "$file"
done | xargs -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p "$build"
echo "lint: clang-tidy is clean"
