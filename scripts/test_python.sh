#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package as its users do, into an environment in build/, and runs its tests there.
#   scripts/test_python.sh              the tests of PyTorch run where that environment has torch, else they are skipped
#   scripts/test_python.sh install      torch is installed first; it is an error where that fails
#   scripts/test_python.sh try          the same, but where it cannot be had in ten minutes its tests are skipped
set -eu
cd "$(dirname "$0")/.."
torch=${1:-}
environment=build/python
python=$environment/bin/python3
[ -x "$python" ] || python3 -m venv "$environment"

# Whatever was built before, with the same options, need not be built again.
if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null 2>&1; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
"$python" -m pip install -q --disable-pip-version-check -r tests/python/requirements.txt
"$python" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps \
  --config-settings=cmake.define.OCTILE_WERROR=ON .

# The module, the library and the command as they are in the package.
package=$(cd "$environment" && bin/python3 -c 'import octile; print(octile.__path__[0])')
"$python" tests/supply/supply_test.py hardening "$package"/_core*.so "$package"/lib/liboctile.so.* "$package/bin/octile"

has_torch() { "$python" -c 'import torch' >/dev/null 2>&1; }
if [ -n "$torch" ] && ! has_torch; then
  free_gib=$(df -Pk build | awk 'NR == 2 { print int($4 / 1048576) }')
  if [ "$free_gib" -lt 16 ]; then
    echo "test-python: torch takes about 8 GiB and as much while it is unpacked, $free_gib GiB are free" >&2
  else
    timeout 600 "$python" -m pip install -q --disable-pip-version-check -r tests/python/with_torch/requirements.txt || true
  fi
  if ! has_torch; then
    [ "$torch" = try ] || exit 1
    echo "test-python: torch cannot be had here within ten minutes: the tests that need it are skipped" >&2
  fi
fi
# Away from the sources, so that the installed package is what is tested.
tests=$PWD/tests/python
python=$PWD/$python
cd "$environment"
exec "$python" -m pytest -q -rs --rootdir "$tests" -p no:cacheprovider --show-capture=stdout "$tests"
