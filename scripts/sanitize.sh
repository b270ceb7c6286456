#!/bin/sh
# The host tests under AddressSanitizer + UndefinedBehaviorSanitizer, then the threaded ones under ThreadSanitizer.
#
#   scripts/sanitize.sh <jobs>
set -eu
cd "$(dirname "$0")/.."
jobs=$1
# Instrumented code is several times slower: fewer random problems.
export TILEFOLD_FUZZ_CASES="${TILEFOLD_FUZZ_CASES:-40}"

echo "== AddressSanitizer and UndefinedBehaviorSanitizer"
cmake --preset asan >/dev/null
cmake --build build/asan -j "$jobs" --target contract_tests cli_io_test
# Leaks are reported too. The 8 GiB reservation of one size test is meant.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
./build/asan/tests/contract/contract_tests --gtest_brief=1 --gtest_filter='-*OneQueryOverFourMillionKeys*'
./build/asan/tests/cli/cli_io_test --gtest_brief=1

if ! command -v clang++ >/dev/null 2>&1; then
  echo "== ThreadSanitizer: left out, clang is not here (GCC's OpenMP is opaque to it)"
  exit 0
fi
echo "== ThreadSanitizer"
cmake --preset tsan >/dev/null
cmake --build build/tsan -j "$jobs" --target contract_tests
# clang's OpenMP tells ThreadSanitizer of its barriers through a tool library of its own, archer, which it loads when the
# program is instrumented; the runtime itself is not instrumented.
archer=$(ls /usr/lib/llvm-*/lib/libarcher.so 2>/dev/null | tail -n 1)
OMP_TOOL_LIBRARIES=$archer TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1" \
  ./build/tsan/tests/contract/contract_tests --gtest_filter='ThreadsTest.*:RepeatTest.*:LastErrorTest.*'
