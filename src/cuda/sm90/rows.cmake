# Tensor maps, which the sm80 family's TMA rows use too.
add_library(tilefold_tensor_map OBJECT tensor_map.cc)
target_include_directories(tilefold_tensor_map PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                                   ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_tensor_map PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_tensor_map)

# The sm90 family: the table and its kernels, where the build has an architecture that runs them. wgmma and setmaxnreg
# exist on compute capability 9.0 alone and have no PTX that later devices could run.
tilefold_wants_sm90(wanted "${TILEFOLD_CUDA_ARCHITECTURES}")
if(wanted)
  add_library(tilefold_sm90 OBJECT sm90/forward_cost.cc sm90/sm90_kernels.cc)
  list(JOIN TILEFOLD_HEAD_DIMS "," head_dims)
  target_compile_definitions(tilefold_sm90 PRIVATE "TILEFOLD_COMPILED_HEAD_DIMS=${head_dims}")
  tilefold_add_kernel_rows(tilefold_sm90_rows SM90 cuda/sm90/instantiate.cuh 90a-real)
  target_include_directories(tilefold_sm90_rows PRIVATE ${TILEFOLD_DLPACK_INCLUDE_DIR})
  tilefold_gate_local_memory(tilefold_sm90_rows)
  tilefold_gate_wgmma(tilefold_sm90_rows)
  tilefold_bound_spins(tilefold_sm90_rows)
  list(APPEND tilefold_cuda_object_libraries tilefold_sm90_rows)
else()
  add_library(tilefold_sm90 OBJECT sm90/no_rows.cc)
endif()
target_include_directories(tilefold_sm90 PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_sm90 PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_sm90)
