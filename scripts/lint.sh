#!/bin/sh
# clang-tidy on the host code and, through one file that includes them all, the headers of src/layout.
#
#   scripts/lint.sh <build directory with compile_commands.json> <jobs>
set -eu
cd "$(dirname "$0")/.."
build=$1 jobs=$2

layout=$build/layout_headers.cc
{
  echo "// Generated: every layout header, for clang-tidy."
  for header in src/layout/*.h; do echo "#include \"layout/$(basename "$header")\""; done
} >"$layout"
clang-tidy --quiet "$layout" -- -std=c++20 -Isrc -Iinclude
# src/cpu's kernels are templates that Highway compiles once per target, and a command of cli/ takes 20 s: a pass over all
# of them would take minutes.
git ls-files 'src/core/*.cc' 'src/cpu/*.cc' 'cli/io/*.cc' 'tests/reference/*.cc' |
  grep -vE 'src/cpu/forward_targets\.cc|no_cuda\.cc|_cuda\.cc' |
  xargs -P "$jobs" -n 1 clang-tidy --quiet -p "$build"
echo "lint: clang-tidy has nothing to say"
