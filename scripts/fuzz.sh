#!/bin/sh
# Runs each libFuzzer target from its committed corpus for FUZZ_SECONDS (20). A finding is written to
# tests/fuzz/corpus/<target>/, from where the replay test runs it ever after.
#
#   scripts/fuzz.sh <jobs>
set -eu
cd "$(dirname "$0")/.."
jobs=$1
seconds=${FUZZ_SECONDS:-20}

if ! command -v clang++ >/dev/null 2>&1; then
  echo "fuzz: left out, clang is not here"
  exit 0
fi
cmake --preset asan >/dev/null
targets=$(ls tests/fuzz/*_fuzzer.cc | xargs -n 1 basename -s .cc)
cmake --build build/asan -j "$jobs" --target $targets
for target in $targets; do
  corpus=tests/fuzz/corpus/$target
  work=build/asan/work/$target
  mkdir -p "$work" "$corpus"
  echo "== $target, $seconds s"
  if ! ./build/asan/tests/fuzz/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$corpus/" "$work" "$corpus" >"$work.log" 2>&1; then
    tail -n 60 "$work.log"
    exit 1
  fi
  grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$work.log" || true
done
