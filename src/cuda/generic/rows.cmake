# The generic family: a translation unit for each dtype.
add_library(tilefold_generic OBJECT generic/generic_kernels.cc generic/forward_bf16.cu generic/forward_fp16.cu
                                    generic/forward_fp32.cu)
target_include_directories(tilefold_generic PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_generic PRIVATE tilefold_flags)
tilefold_one_intermediate_code(tilefold_generic 80 ${TILEFOLD_CUDA_ARCHITECTURES})
tilefold_gate_local_memory(tilefold_generic)
list(APPEND tilefold_cuda_object_libraries tilefold_generic)
