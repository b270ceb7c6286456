# The sm90 family.
add_library(tilefold_sm90 OBJECT sm90/sm90_kernels.cc tensor_map.cc)
target_include_directories(tilefold_sm90 PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_sm90 PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_sm90)
