# What may be asked of a CUDA build: checks of its options, and what follows from them. Needs no CUDA, so that tests can run
# it by itself (cmake -P).
set(TILEFOLD_ALL_HEAD_DIMS 32 64 96 128 160 192 224 256)

# tilefold_check_cuda_options(<architectures> <head dims>)
#
# Both are lists. Stops at a value that no kernel could be built for.
function(tilefold_check_cuda_options architectures head_dims)
  set(accepted "accepted: numbers from 80 on, each with -real or -virtual behind it or not, separated by semicolons; or native alone")
  if(NOT architectures)
    message(FATAL_ERROR "TILEFOLD_CUDA_ARCHITECTURES is empty; ${accepted}")
  endif()
  if(architectures STREQUAL "native")
    set(architectures) # looked at again once CMake has looked for GPUs
  endif()
  foreach(architecture IN LISTS architectures)
    # all and all-major begin below 80.
    if(NOT architecture MATCHES "^([0-9]+)a?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "TILEFOLD_CUDA_ARCHITECTURES holds '${architecture}'; ${accepted}")
    endif()
  endforeach()
  list(JOIN TILEFOLD_ALL_HEAD_DIMS ", " all)
  set(accepted "accepted: any of ${all}, separated by semicolons")
  if(NOT head_dims)
    message(FATAL_ERROR "TILEFOLD_HEAD_DIMS is empty; ${accepted}")
  endif()
  foreach(head_dim IN LISTS head_dims)
    if(NOT head_dim IN_LIST TILEFOLD_ALL_HEAD_DIMS)
      message(FATAL_ERROR "TILEFOLD_HEAD_DIMS holds '${head_dim}'; ${accepted}")
    endif()
  endforeach()
endfunction()

# tilefold_wants_sm90(<out> <architectures>)
#
# Whether the architectures call for the rows that exist on compute capability 9.0 alone.
function(tilefold_wants_sm90 out architectures)
  set(wanted OFF)
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^90a?(-real|-virtual)?$")
      set(wanted ON)
    endif()
  endforeach()
  set(${out} ${wanted} PARENT_SCOPE)
endfunction()
