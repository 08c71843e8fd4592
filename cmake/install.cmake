# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down. Both libraries are exported, each in a file of its own, so that a
# user of the shared one need not have what only the static one links to. Everything is found
# relative to the files' own place: an installed tree can be moved.

include(CMakePackageConfigHelpers)

install(DIRECTORY include/fovea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(FOVEA_CLI)
  install(TARGETS fovea_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/scene.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea)
install(DIRECTORY examples/scenes DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea
  FILES_MATCHING PATTERN "*.json")

# find_package(fovea CONFIG)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
foreach(kind static shared)
  install(TARGETS fovea_${kind} EXPORT fovea_${kind}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT fovea_${kind} FILE fovea-${kind}.cmake NAMESPACE fovea:: DESTINATION ${package_dir})
endforeach()
# fovea::nn is exported beside each, and found where oneDNN is.
if(FOVEA_NN)
  foreach(kind static shared)
    install(TARGETS fovea_nn_${kind} EXPORT fovea_nn_${kind}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT fovea_nn_${kind} FILE fovea-nn-${kind}.cmake NAMESPACE fovea::
      DESTINATION ${package_dir})
  endforeach()
  install(FILES cmake/onednn.cmake DESTINATION ${package_dir})
endif()
configure_package_config_file(cmake/foveaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/foveaConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/foveaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/foveaConfig.cmake
  ${PROJECT_BINARY_DIR}/package/foveaConfigVersion.cmake DESTINATION ${package_dir})

# pkg-config: `prefix` as seen from where the file lies.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE FOVEA_PC_PREFIX)
foreach(dir LIBDIR INCLUDEDIR)
  # Relative to the prefix unless the builder gave an absolute path.
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${dir} absolute)
  if(absolute)
    set(FOVEA_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(FOVEA_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
# Not as a module: that would ask for what libzip's own archive needs, where its shared library does,
# and of which Debian's package does not bring all.
list(JOIN libzip_LDFLAGS " " FOVEA_PC_LIBZIP)
configure_file(cmake/fovea.pc.in ${PROJECT_BINARY_DIR}/package/fovea.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/fovea.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(FOVEA_NN)
  configure_file(cmake/fovea-nn.pc.in ${PROJECT_BINARY_DIR}/package/fovea-nn.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/fovea-nn.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
