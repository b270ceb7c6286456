# The build's options and the flags that every target of ours shares.

set(TILEFOLD_CUDA AUTO CACHE STRING "Build the CUDA back ends: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE TILEFOLD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TILEFOLD_CUDA_ARCHITECTURES 80 86 89 90 100 120 CACHE STRING "GPU architectures to compile for")
include(TilefoldCudaChoices)
set(TILEFOLD_HEAD_DIMS ${TILEFOLD_ALL_HEAD_DIMS} CACHE STRING "Head dims of the kernel rows to compile")
option(BUILD_SHARED_LIBS "Build a shared library" ON)
option(TILEFOLD_BUILD_CLI "Build the command line" ${PROJECT_IS_TOP_LEVEL})
option(TILEFOLD_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TILEFOLD_BUILD_BENCH "Build the benchmarks" OFF)
option(TILEFOLD_INSTALL "Generate install rules" ${PROJECT_IS_TOP_LEVEL})
option(TILEFOLD_WERROR "Treat warnings as errors" OFF)
set(TILEFOLD_SANITIZE "" CACHE STRING "Sanitizers for host code, e.g. address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# TILEFOLD_WITH_CUDA: what TILEFOLD_CUDA comes to on this machine.
set(TILEFOLD_WITH_CUDA OFF)
if(NOT TILEFOLD_CUDA STREQUAL "OFF")
  find_program(TILEFOLD_NVCC nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(TILEFOLD_NVCC)
    set(TILEFOLD_WITH_CUDA ON)
    set(CMAKE_CUDA_COMPILER ${TILEFOLD_NVCC} CACHE FILEPATH "")
  elseif(TILEFOLD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TILEFOLD_CUDA=ON, but no nvcc was found; put it on PATH or set TILEFOLD_NVCC")
  endif()
endif()
if(TILEFOLD_WITH_CUDA)
  tilefold_check_cuda_options("${TILEFOLD_CUDA_ARCHITECTURES}" "${TILEFOLD_HEAD_DIMS}")
endif()

# Flags of all host code of ours.
add_library(tilefold_flags INTERFACE)
target_compile_options(
  tilefold_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -fvisibility=hidden>
                           $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)
if(TILEFOLD_WERROR)
  # GCC's optimiser warns of overlaps and bounds inside libstdc++ that are none (GCC 12: std::string, std::copy): these
  # stay warnings.
  target_compile_options(
    tilefold_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
                             $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=restrict
                             -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread>)
endif()
if(TILEFOLD_SANITIZE)
  # Checks as calls: inlined, they take clang minutes over the SIMD kernels.
  target_compile_options(
    tilefold_flags
    INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TILEFOLD_SANITIZE} -fno-omit-frame-pointer
              -fno-sanitize-recover=all -g1>
              $<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-mllvm -asan-instrumentation-with-call-threshold=0>)
  target_link_options(tilefold_flags INTERFACE -fsanitize=${TILEFOLD_SANITIZE})
endif()
