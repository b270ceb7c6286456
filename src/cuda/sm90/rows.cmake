# The sm90 family: tensor maps (which the sm80 family's TMA rows use too), the table and its kernels.
add_library(tilefold_sm90 OBJECT sm90/forward_cost.cc sm90/sm90_kernels.cc tensor_map.cc)
target_include_directories(tilefold_sm90 PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_sm90 PRIVATE tilefold_flags)
list(JOIN TILEFOLD_HEAD_DIMS "," tilefold_head_dims)
target_compile_definitions(tilefold_sm90 PRIVATE "TILEFOLD_COMPILED_HEAD_DIMS=${tilefold_head_dims}")
list(APPEND tilefold_cuda_object_libraries tilefold_sm90)

# wgmma and setmaxnreg exist on compute capability 9.0 alone and have no PTX that later devices could run.
tilefold_add_kernel_rows(tilefold_sm90_rows SM90 cuda/sm90/instantiate.cuh 90a-real)
target_sources(tilefold_sm90_rows PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/sm90/tile_counter.cu)
target_include_directories(tilefold_sm90_rows PRIVATE ${TILEFOLD_DLPACK_INCLUDE_DIR})
tilefold_gate_local_memory(tilefold_sm90_rows)
list(APPEND tilefold_cuda_object_libraries tilefold_sm90_rows)

option(TILEFOLD_BOUNDED_SPINS "For tests: Hopper kernels trap where a wait on a barrier does not end" OFF)
if(TILEFOLD_BOUNDED_SPINS)
  target_compile_definitions(tilefold_sm90_rows PRIVATE TILEFOLD_BOUNDED_SPINS)
endif()
