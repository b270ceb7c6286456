#!/bin/sh
# The contract and the file readers under AddressSanitizer + UndefinedBehaviorSanitizer, then what is threaded under
# ThreadSanitizer.
#
#   scripts/sanitize.sh <jobs>
set -eu
cd "$(dirname "$0")/.."
jobs=$1
# Instrumented code is several times slower: fewer random problems, and of the long sweeps one dtype.
export TILEFOLD_FUZZ_CASES="${TILEFOLD_FUZZ_CASES:-40}"
left_out='*OneQueryOverFourMillionKeys*'
for sweep in LengthsTest.LengthsAroundLargerTiles LengthsTest.EveryLengthToAHundredAndThirty LayoutsTest.MoreHeadsThanAGridAxisHolds; do
  left_out="$left_out:*$sweep/float16:*$sweep/bfloat16"
done

if ! command -v clang++ >/dev/null 2>&1; then
  echo "sanitize: left out, clang is not here"
  exit 0
fi
echo "== AddressSanitizer and UndefinedBehaviorSanitizer"
cmake --preset asan >/dev/null
cmake --build build/asan -j "$jobs" --target contract_tests cli_io_test
# Leaks are reported too, but those of OpenMP's runtime, which keeps what it holds for each host thread that called it.
# The 8 GiB reservation of one size test is meant.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
echo "leak:libomp.so" >build/asan/leaks
export LSAN_OPTIONS=suppressions=build/asan/leaks:print_suppressions=0
./build/asan/tests/cli/cli_io_test --gtest_brief=1
./build/asan/tests/contract/contract_tests --gtest_brief=1 --gtest_filter="-$left_out"

echo "== ThreadSanitizer"
cmake --preset tsan >/dev/null
cmake --build build/tsan -j "$jobs" --target contract_tests
# clang's OpenMP tells ThreadSanitizer of its barriers through a tool library of its own, archer, which it loads when the
# program is instrumented; the runtime itself is not instrumented.
archer=$(ls /usr/lib/llvm-*/lib/libarcher.so 2>/dev/null | tail -n 1)
OMP_TOOL_LIBRARIES=$archer TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1" \
  ./build/tsan/tests/contract/contract_tests --gtest_brief=1 \
  --gtest_filter='ThreadsTest.*:RepeatTest.*:LastErrorTest.*:ThreadCountTest.*'
