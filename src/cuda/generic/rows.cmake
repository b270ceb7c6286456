# The generic family: a translation unit for each dtype.
add_library(tilefold_generic OBJECT generic/generic_kernels.cc generic/forward_bf16.cu generic/forward_fp16.cu
                                    generic/forward_fp32.cu)
target_include_directories(tilefold_generic PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_generic PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_generic)
