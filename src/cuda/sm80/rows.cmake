# The sm80 family.
add_library(tilefold_sm80 OBJECT sm80/sm80_kernels.cc)
target_include_directories(tilefold_sm80 PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_sm80 PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_sm80)
