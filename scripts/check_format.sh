#!/bin/sh
# Checks that every source file is formatted (or, with --fix, formats it). The layout is that of clang-format 14, Debian
# 12's; later ones break some lines elsewhere, so that with another version the check is left out, and says so.
set -eu
cd "$(dirname "$0")/.."

tool=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null 2>&1 && "$candidate" --version | grep -q 'version 14\.'; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "format: left out; clang-format 14 is not here ($(clang-format --version 2>/dev/null || echo none))"
  exit 0
fi
files=$(git ls-files '*.c' '*.cc' '*.cpp' '*.cu' '*.cuh' '*.h' '*.hpp')
if [ "${1:-}" = --fix ]; then
  echo "$files" | xargs "$tool" -i
  exit 0
fi
echo "$files" | xargs "$tool" --dry-run -Werror
echo "format: $(echo "$files" | wc -l) files as clang-format 14 wants them"
