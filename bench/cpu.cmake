# tilefold_cpu_bench: the CPU back end against the FMA peak that it measures itself.
find_path(TILEFOLD_HIGHWAY_INCLUDE_DIR hwy/highway.h REQUIRED)
add_executable(tilefold_cpu_bench ${CMAKE_CURRENT_LIST_DIR}/cpu_bench.cc ${CMAKE_CURRENT_LIST_DIR}/cpu_peak.cc)
target_include_directories(tilefold_cpu_bench PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_include_directories(tilefold_cpu_bench SYSTEM PRIVATE ${TILEFOLD_HIGHWAY_INCLUDE_DIR})
target_link_libraries(tilefold_cpu_bench PRIVATE tilefold_internal tilefold_flags OpenMP::OpenMP_CXX)
