#!/bin/sh
# Installs the system packages that a make target needs, on Debian 12, Ubuntu 24.04 and their like. Does nothing, and
# says nothing, when all are there.
#
#   scripts/install_packages.sh demo|test|check|fuzz...
set -eu

# What is already there is found by command (whoever installed it) or, for libraries, by a header.
missing=""
need_command() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need_header() {
  for dir in /usr/include /usr/local/include; do
    [ -e "$dir/$1" ] && return 0
  done
  missing="$missing $2"
}

need_python_module() { python3 -c "import $1" 2>/dev/null || missing="$missing $2"; }
need_python_header() {
  python3 -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
    2>/dev/null || missing="$missing $1"
}

need_build() {
  need_command cmake cmake
  need_command ninja ninja-build
  need_command g++ g++
  need_command gcc gcc
  need_header stdlib.h libc6-dev
  need_header hwy/highway.h libhwy-dev
  need_header dlpack/dlpack.h libdlpack-dev
  need_header fmt/format.h libfmt-dev
  need_header nlohmann/json.hpp nlohmann-json3-dev
}

for target in "$@"; do
  case "$target" in
    demo) need_build ;;
    test)
      need_build
      need_header gtest/gtest.h libgtest-dev
      need_header boost/context/fiber.hpp libboost-context-dev
      need_command pkg-config pkg-config
      need_command python3 python3
      need_python_module ensurepip python3-venv
      need_python_header python3-dev
      need_command nm binutils
      ;;
    bench)
      need_build
      need_header benchmark/benchmark.h libbenchmark-dev
      ;;
    check)
      need_command clang-format clang-format
      need_command clang-tidy clang-tidy
      need_command python3 python3
      need_command git git
      ;;
    fuzz)
      need_command clang++ clang
      # OpenMP for clang: its header lies in clang's own directory.
      ls /usr/lib/llvm-*/lib/libomp.so >/dev/null 2>&1 || missing="$missing libomp-dev"
      ;;
    *)
      echo "install_packages.sh: no such target: $target" >&2
      exit 2
      ;;
  esac
done

packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
[ -n "$(echo "$packages" | tr -d ' ')" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "These are needed and were not found (Debian's names): $packages" >&2
  echo "There is no apt-get here to install them with: install them by your system's means, then run this again." >&2
  exit 1
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "These packages are needed, and neither root's rights nor sudo are at hand: $packages" >&2
    exit 1
  fi
  sudo="sudo"
fi
echo "Installing system packages: $packages"
export DEBIAN_FRONTEND=noninteractive
install() { $sudo apt-get install -y --no-install-recommends $packages >/dev/null; }
# The lists may be stale or absent: try with them as they are, then afresh.
if ! install 2>/dev/null; then
  $sudo apt-get update -q >/dev/null
  install
fi
