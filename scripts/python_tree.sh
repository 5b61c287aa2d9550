#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lays out the Python package as `pip install .` does, from a library that is already built: only the module octile._core
# is compiled. For machines without the libraries that Octile's own build needs: cmake, a C++23 compiler and nanobind do.
#   scripts/python_tree.sh BUILT TREE [PYTHON]
# BUILT: a folder with liboctile.so and, where they are wanted, bin/octile (or octile) and components (liboctile_*.so),
# as build/release is. The package is then TREE/octile: put TREE into PYTHONPATH.
set -eu
[ $# -ge 2 ] || { sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
built=$(realpath "$1")
mkdir -p "$2"
tree=$(realpath "$2")
python=${3:-python3}
cd "$(dirname "$0")/.."

library=""
for name in liboctile.so liboctile.so.0; do
  [ -z "$library" ] && [ -e "$built/$name" ] && library=$(realpath "$built/$name")
done
[ -n "$library" ] || { echo "python_tree: want liboctile.so or liboctile.so.0 in $built, got neither" >&2; exit 1; }

package=$tree/octile
rm -rf "$package"
mkdir -p "$package/lib/octile" "$package/bin" "$package/share/octile"
cp -R python/octile/. "$package/"
find "$package" -name __pycache__ -prune -exec rm -rf {} +
cp "$library" "$package/lib/liboctile.so.0"
cp -R tables "$package/share/octile/tables"
for command in bin/octile octile; do
  [ -f "$built/$command" ] && [ ! -e "$package/bin/octile" ] && cp "$built/$command" "$package/bin/octile"
done
for component in "$built"/liboctile_*.so; do
  [ ! -e "$component" ] || cp "$component" "$package/lib/octile/"
done
[ -e "$package/bin/octile" ] || echo "python_tree: no command octile in $built: octile.tune and octile.explain will fail" >&2

generator=""
command -v ninja >/dev/null 2>&1 && generator=-GNinja
# shellcheck disable=SC2086  # No generator is no argument.
cmake -S python -B "$tree/build" $generator --log-level=NOTICE -DOCTILE_LIBRARY="$package/lib/liboctile.so.0" \
  -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')"
cmake --build "$tree/build" --parallel "$(nproc)"
cp "$tree"/build/_core*.so "$package/"
rm -rf "$tree/build"
PYTHONPATH=$tree "$python" -c 'import octile; print("python_tree:", octile.__file__, octile.__version__)'
