#!/bin/sh
# Installs a build into a temporary prefix, builds an outside C project (pkg-config) and an outside C++ project (CMake)
# against it, and runs both; then moves the prefix and does so again. Exit code 77: a tool is missing.
#
#   check_install.sh <cmake> <build directory> <source directory> <C compiler> <C++ compiler> <shared|static>
set -eu
cmake=$1 build=$2 source=$3 cc=$4 cxx=$5 kind=$6

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/log" || { cat "$scratch/log"; exit 1; }

# No header may need anything that is not installed or standard: the compiler sees the installed tree alone.
check_prefix() {
  prefix=$1
  libdir=$(dirname "$(find "$prefix" -name 'libtilefold.*' -not -type d | head -n 1)")
  for file in include/tilefold/tilefold.h include/tilefold/tilefold.hpp \
    include/tilefold/third_party/dlpack/dlpack.h share/licenses/tilefold/LICENSE; do
    [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
  done

  if command -v pkg-config >/dev/null 2>&1; then
    export PKG_CONFIG_PATH="$libdir/pkgconfig"
    static_flag=""
    [ "$kind" = static ] && static_flag="--static"
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/c/main.c" -o "$scratch/c_program" \
      $(pkg-config --cflags --libs $static_flag tilefold) -Wl,-rpath,"$libdir"
    "$scratch/c_program"
    [ "$(pkg-config --modversion tilefold)" = "$("$scratch/c_program" | sed 's/tilefold \(.*\):.*/\1/')" ]
  else
    echo "pkg-config not found: the C project is left out"
    left_out=1
  fi

  # Without C++20 the C++ header says so, first of all.
  if "$cxx" -std=c++17 -fsyntax-only -I"$prefix/include" -I"$prefix/include/tilefold/third_party" "$source/cpp/main.cc" \
    2>"$scratch/log"; then
    echo "tilefold.hpp compiles as C++17"
    exit 1
  fi
  grep error "$scratch/log" | head -n 1 | grep -q 'tilefold.hpp needs C++20 (-std=c++20)' || { cat "$scratch/log"; exit 1; }
  # Nor does it warn where the project is strict.
  "$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I"$prefix/include" \
    -isystem "$prefix/include/tilefold/third_party" "$source/cpp/main.cc"

  # A project of C alone: served by a shared library; of a static one it is told why not.
  rm -rf "$scratch/outside"
  if "$cmake" -S "$source/c" -B "$scratch/outside" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1; then
    [ "$kind" = shared ] || { echo "a project of C alone found the static library"; exit 1; }
    "$cmake" --build "$scratch/outside" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
    "$scratch/outside/outside"
  else
    [ "$kind" = static ] || { cat "$scratch/log"; exit 1; }
    grep -q 'only projects with C++ can link' "$scratch/log" || { cat "$scratch/log"; exit 1; }
  fi

  rm -rf "$scratch/outside"
  "$cmake" -S "$source/cpp" -B "$scratch/outside" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  "$cmake" --build "$scratch/outside" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  "$scratch/outside/outside"

  if [ -x "$prefix/bin/tilefold" ]; then
    "$prefix/bin/tilefold" --version
  fi
}

left_out=0
check_prefix "$scratch/first"
mv "$scratch/first" "$scratch/second"
check_prefix "$scratch/second"
[ "$left_out" -eq 0 ] || exit 77
