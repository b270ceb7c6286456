# Checks the options of a CUDA build by themselves: cmake -DARCHITECTURES=<list> -DHEAD_DIMS=<list> -P <this file>.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/TilefoldCudaChoices.cmake)
tilefold_check_cuda_options("${ARCHITECTURES}" "${HEAD_DIMS}")
tilefold_wants_sm90(sm90 "${ARCHITECTURES}")
message(STATUS "accepted, sm90 ${sm90}")
