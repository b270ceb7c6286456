# The CUDA toolchain, and the function that turns lines of src/cuda/kernels.def into translation units.
set(CMAKE_CUDA_ARCHITECTURES ${TILEFOLD_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(TILEFOLD_CUDA_ARCHITECTURES STREQUAL "native")
  if(NOT CMAKE_CUDA_ARCHITECTURES_NATIVE MATCHES "^[0-9]")
    message(FATAL_ERROR "TILEFOLD_CUDA_ARCHITECTURES is native, but CMake finds no GPU here; name architectures")
  endif()
  set(TILEFOLD_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  set(CMAKE_CUDA_ARCHITECTURES ${TILEFOLD_CUDA_ARCHITECTURES})
  tilefold_check_cuda_options("${TILEFOLD_CUDA_ARCHITECTURES}" "${TILEFOLD_HEAD_DIMS}")
endif()
# CMake 3.25.1 does not know that nvcc takes C++20 (since 12.0).
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

# tilefold_kernel_lines(<FAMILY> <out>)
#
# The lines `TILEFOLD_<FAMILY>_ROW(name, ..., head_dim = N, ...)` of kernels.def whose head dim is in TILEFOLD_HEAD_DIMS.
function(tilefold_kernel_lines family out)
  set(def ${PROJECT_SOURCE_DIR}/src/cuda/kernels.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${def})
  file(STRINGS ${def} lines REGEX "^TILEFOLD_${family}_ROW\\(")
  set(kept)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "\\.head_dim = ([0-9]+)")
      message(FATAL_ERROR "kernels.def: no .head_dim in: ${line}")
    endif()
    if(CMAKE_MATCH_1 IN_LIST TILEFOLD_HEAD_DIMS)
      list(APPEND kept "${line}")
    endif()
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

# tilefold_add_kernel_lines(<target> <include> <architectures> <line>...)
#
# Writes <build>/kernels/<name>.cu = `#include <include>` and the line itself for each line, and compiles them all into
# OBJECT library <target>, for the architectures (a list; empty: those of the build). <include> defines the macro, so
# that the line becomes the kernel's instantiation.
function(tilefold_add_kernel_lines target include architectures)
  set(sources)
  foreach(line IN LISTS ARGN)
    string(REGEX MATCH "^TILEFOLD_[A-Z0-9]+_ROW\\(([a-z0-9_]+)" _ "${line}")
    set(source ${PROJECT_BINARY_DIR}/kernels/${CMAKE_MATCH_1}.cu)
    file(CONFIGURE OUTPUT ${source} CONTENT
         "// Generated from src/cuda/kernels.def.\n#include \"${include}\"\n${line}\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  if(NOT sources) # no row of the family has any of the head dims
    set(sources ${PROJECT_BINARY_DIR}/kernels/${target}_none.cu)
    file(CONFIGURE OUTPUT ${sources} CONTENT "// Generated: no row of this family is compiled.\n")
  endif()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE tilefold_flags)
  if(architectures)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  endif()
endfunction()

# tilefold_add_kernel_rows(<target> <FAMILY> <include> [<architectures>...])
#
# All of a family's lines in one target.
function(tilefold_add_kernel_rows target family include)
  tilefold_kernel_lines(${family} lines)
  tilefold_add_kernel_lines(${target} ${include} "${ARGN}" ${lines})
endfunction()

# tilefold_gate_local_memory(<target>)
#
# Registers that spill and arrays in local memory fail the build of the target's kernels.
function(tilefold_gate_local_memory target)
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warn-on-local-memory-usage,-Werror>)
endfunction()

# tilefold_gate_wgmma(<target>)
#
# Warpgroup matrix products that ptxas serialises fail the build of the target's kernels.
function(tilefold_gate_wgmma target)
  set(launcher sh ${PROJECT_SOURCE_DIR}/cmake/refuse_serialised_wgmma.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()

# tilefold_bound_spins(<target>)
#
# In builds for tests: the target's kernels trap where a wait does not end (cuda/ptx/wait_limit.h).
option(TILEFOLD_BOUNDED_SPINS "For tests: kernels trap where a wait for other threads lasts longer than 13 s" OFF)
function(tilefold_bound_spins target)
  if(TILEFOLD_BOUNDED_SPINS)
    target_compile_definitions(${target} PRIVATE TILEFOLD_BOUNDED_SPINS)
  endif()
endfunction()

# tilefold_one_intermediate_code(<target> <LEAST> <architecture>...)
#
# Machine code for each of the architectures, all of it made from one intermediate code: that of compute capability LEAST,
# whose instructions are all that the target's kernels use. It is compiled once instead of once for each architecture, which
# is half of a build's time, and goes along, so that the driver can make the code of devices that come later. That it
# costs no speed is measured: docs/devlog.md, "What the prototype showed".
#
# Where an architecture is named by more than its number (90a, 80-virtual), CMake's own flags stand.
function(tilefold_one_intermediate_code target least)
  set(codes)
  foreach(architecture IN LISTS ARGN)
    if(NOT architecture MATCHES "^([0-9]+)(-real)?$" OR CMAKE_MATCH_1 LESS least)
      set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${ARGN}")
      return()
    endif()
    list(APPEND codes sm_${CMAKE_MATCH_1})
  endforeach()
  list(JOIN codes "," codes)
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--generate-code=arch=compute_${least},code=[${codes},compute_${least}]>)
endfunction()
