# Adds the target tilefold_reference (tests/reference) once, whoever asks for it.
if(NOT TARGET tilefold_reference)
  add_subdirectory(${PROJECT_SOURCE_DIR}/tests/reference ${PROJECT_BINARY_DIR}/tests/reference)
endif()
