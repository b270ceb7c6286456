#!/bin/sh
# Words that must not stand in the tree: unfinished work, and paths of the machine somebody wrote on.
set -eu
cd "$(dirname "$0")/.."

status=0
complain() { # complain <what> <extended regular expression> <pathspec>...
  what=$1 pattern=$2
  shift 2
  if found=$(git grep -nIE "$pattern" -- "$@" ':!scripts/check_words.sh'); then
    echo "words: $what:"
    echo "$found"
    status=1
  fi
}

complain "unfinished work" '\b(TODO|FIXME|XXX|HACK)\b' .
complain "a path of one person's machine" '(^|[^A-Za-z0-9_.])/(work|home|root|Users)/[a-z]' . ':!*.safetensors'
complain "debug output in a kernel" '\bprintf *\(' 'src/cuda/*.cuh' 'src/layout'
complain "trailing blanks" '[[:blank:]]+$' '*.cc' '*.h' '*.hpp' '*.cu' '*.cuh' '*.c' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' Makefile
[ $status -ne 0 ] || echo "words: none that must not stand"
exit $status
