# The generic family: one translation unit for all its rows.
add_library(tilefold_generic OBJECT generic/generic_kernels.cc generic/forward.cu)
target_include_directories(tilefold_generic PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                             ${TILEFOLD_DLPACK_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tilefold_generic PRIVATE tilefold_flags)
list(APPEND tilefold_cuda_object_libraries tilefold_generic)
