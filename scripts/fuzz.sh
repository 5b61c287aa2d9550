#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz program for SECONDS seconds (first argument), JOBS of them at a time (environment; as many as there are cores
# by default), on its corpus in tests/fuzz/corpus, to which what is new is added only with `keep` as second argument; further
# arguments name the programs to run. An input at which a program ends is left in build/fuzz/finds, and the exit status is 1.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-30}
keep=${2:-}
[ $# -le 2 ] || { shift 2; programs=$*; }
finds=build/fuzz/finds
mkdir -p "$finds"

run_one() {
  name=$1
  found=build/fuzz/new/$name
  mkdir -p "$found" "tests/fuzz/corpus/$name"
  [ "$keep" = keep ] && found=tests/fuzz/corpus/$name
  status=0
  # 10 s: no input of this size may take longer. A leak is a fault as well.
  OCTILE_LOG_LEVEL=off OCTILE_NUM_THREADS=2 "build/asan/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$finds/$name-" -print_final_stats=1 -close_fd_mask=1 "$found" "tests/fuzz/corpus/$name" \
    >"build/fuzz/$name.log" 2>&1 || status=$?
  tries=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log")
  if [ "$status" = 0 ]; then
    echo "fuzz: $name: ${tries:-0} inputs, nothing found"
  else
    echo "fuzz: $name: status $status after ${tries:-?} inputs; the end of build/fuzz/$name.log:" >&2
    tail -40 "build/fuzz/$name.log" >&2
    return 1
  fi
}

# Called by itself for one program.
if [ -n "${OCTILE_FUZZ_ONE:-}" ]; then
  run_one "$OCTILE_FUZZ_ONE"
  exit
fi
for name in ${programs:-$(cd tests/fuzz && ls ./*_fuzz.cpp | sed 's|^\./||; s|\.cpp$||')}; do
  echo "$name"
done | xargs -P "${JOBS:-$(nproc)}" -I NAME env OCTILE_FUZZ_ONE=NAME scripts/fuzz.sh "$seconds" "$keep"
