# What `cmake --install` lays down: the library, its headers with the one DLPack header they include, a CMake package
# (find_package(tilefold), target tilefold::tilefold), a pkg-config file, the command line and the licences.
include(CMakePackageConfigHelpers)

set(tilefold_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tilefold)
set(tilefold_third_party_dir ${CMAKE_INSTALL_INCLUDEDIR}/tilefold/third_party)
set(tilefold_license_dir ${CMAKE_INSTALL_DATADIR}/licenses/tilefold)

target_include_directories(tilefold INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                              $<INSTALL_INTERFACE:${tilefold_third_party_dir}>)
install(
  TARGETS tilefold
  EXPORT tilefoldTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(
  EXPORT tilefoldTargets
  NAMESPACE tilefold::
  DESTINATION ${tilefold_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tilefoldConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tilefoldConfig.cmake INSTALL_DESTINATION ${tilefold_package_dir})
# Before 1.0 a minor release may break: 0.1.x serves a request for 0.1.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilefoldConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilefoldConfig.cmake ${PROJECT_BINARY_DIR}/tilefoldConfigVersion.cmake
        DESTINATION ${tilefold_package_dir})

# Link flags that only a static consumer needs: what the objects inside call.
set(tilefold_pc_private "-lstdc++ -lm -lpthread ${OpenMP_CXX_FLAGS}")
foreach(flag IN LISTS tilefold_private_libraries)
  if(TARGET ${flag})
    get_target_property(location ${flag} IMPORTED_LOCATION_RELEASE)
    if(NOT location)
      get_target_property(location ${flag} IMPORTED_LOCATION)
    endif()
    if(location)
      string(APPEND tilefold_pc_private " ${location}")
    endif()
  elseif(flag)
    string(APPEND tilefold_pc_private " ${flag}")
  endif()
endforeach()
if(TILEFOLD_WITH_CUDA)
  string(APPEND tilefold_pc_private " ${CUDA_cudart_static_LIBRARY} -lrt -ldl")
endif()
# Relative to the .pc file, so that an installed tree can be moved; absolute install directories stay absolute.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(tilefold_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH tilefold_pc_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  set(tilefold_pc_prefix "\${pcfiledir}/${tilefold_pc_up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(tilefold_pc_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(tilefold_pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/tilefold.pc.in ${PROJECT_BINARY_DIR}/tilefold.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tilefold.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilefold
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.hpp")
install(FILES ${TILEFOLD_DLPACK_INCLUDE_DIR}/dlpack/dlpack.h DESTINATION ${tilefold_third_party_dir}/dlpack)

if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${tilefold_license_dir})
endif()
# dlpack.h is under the Apache License 2.0; Debian and Ubuntu keep its text in one place.
if(EXISTS /usr/share/common-licenses/Apache-2.0)
  install(
    FILES /usr/share/common-licenses/Apache-2.0
    DESTINATION ${tilefold_license_dir}
    RENAME LICENSE.dlpack)
endif()

if(TILEFOLD_BUILD_CLI AND TARGET tilefold_cli)
  install(TARGETS tilefold_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set_target_properties(tilefold_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  file(GLOB tilefold_completion ${PROJECT_SOURCE_DIR}/cli/completion/* ${PROJECT_SOURCE_DIR}/cli/*.bash)
  foreach(completion IN LISTS tilefold_completion)
    install(
      FILES ${completion}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
      RENAME tilefold)
  endforeach()
endif()
