# The CUDA toolchain, and the function that turns lines of src/cuda/kernels.def into translation units.
set(CMAKE_CUDA_ARCHITECTURES ${TILEFOLD_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25.1 does not know that nvcc takes C++20 (since 12.0).
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

# tilefold_add_kernel_rows(<target> <FAMILY> <include> [<architectures>...])
#
# For every line `TILEFOLD_<FAMILY>_ROW(name, ..., head_dim = N, ...)` of kernels.def whose head dim is in
# TILEFOLD_HEAD_DIMS, writes <build>/kernels/<name>.cu = `#include <include>` and the line itself, and compiles them all
# into OBJECT library <target>. <include> defines the macro, so that the line becomes the kernel's instantiation.
function(tilefold_add_kernel_rows target family include)
  set(def ${PROJECT_SOURCE_DIR}/src/cuda/kernels.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${def})
  file(STRINGS ${def} lines REGEX "^TILEFOLD_${family}_ROW\\(")
  set(sources)
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^TILEFOLD_${family}_ROW\\(([a-z0-9_]+)" _ "${line}")
    set(name ${CMAKE_MATCH_1})
    if(NOT line MATCHES "\\.head_dim = ([0-9]+)")
      message(FATAL_ERROR "kernels.def: no .head_dim in: ${line}")
    endif()
    if(NOT CMAKE_MATCH_1 IN_LIST TILEFOLD_HEAD_DIMS)
      continue()
    endif()
    set(source ${PROJECT_BINARY_DIR}/kernels/${name}.cu)
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
  if(ARGN)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${ARGN}")
  endif()
endfunction()
