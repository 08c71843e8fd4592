# SPDX-License-Identifier: Apache-2.0
# Rules for `cmake --install`. The static and the shared library are exported in separate files, so that users of the
# shared library do not need the link dependencies of the static one. All paths are relative to the installed files,
# so an installed tree can be moved.

include(CMakePackageConfigHelpers)

install(DIRECTORY include/fovea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(FOVEA_CLI)
  install(TARGETS fovea_cli fovea_bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  include(cmake/manual.cmake)
endif()

install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/scene.schema.json docs/recording.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea)
install(DIRECTORY examples/scenes DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea
  FILES_MATCHING PATTERN "*.json")

# find_package(fovea CONFIG)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
foreach(library IN LISTS FOVEA_LIBRARIES)
  foreach(kind static shared)
    install(TARGETS ${library}_${kind} EXPORT ${library}_${kind}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT ${library}_${kind} FILE ${library}-${kind}.cmake NAMESPACE fovea::
      DESTINATION ${package_dir})
  endforeach()
endforeach()
if(FOVEA_NN)
  install(FILES cmake/onednn.cmake DESTINATION ${package_dir})
endif()
if(FOVEA_MPI)
  install(FILES cmake/mpi.cmake DESTINATION ${package_dir})
endif()
configure_package_config_file(cmake/foveaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/foveaConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0, a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/foveaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/foveaConfig.cmake
  ${PROJECT_BINARY_DIR}/package/foveaConfigVersion.cmake DESTINATION ${package_dir})

# pkg-config: `prefix` relative to the folder of the .pc file.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE FOVEA_PC_PREFIX)
foreach(dir LIBDIR INCLUDEDIR)
  # Relative to the prefix, unless the user configured an absolute path.
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${dir} absolute)
  if(absolute)
    set(FOVEA_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(FOVEA_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
# fovea_pc(LIBRARY DESCRIPTION REQUIRES REQUIRES_PRIVATE LIBS_PRIVATE): installs the pkg-config file of a library, if
# the library is built. "=" in REQUIRES is expanded to "= " and this version.
function(fovea_pc library FOVEA_PC_DESCRIPTION FOVEA_PC_REQUIRES FOVEA_PC_REQUIRES_PRIVATE FOVEA_PC_LIBS_PRIVATE)
  if(NOT library IN_LIST FOVEA_LIBRARIES)
    return()
  endif()
  set(FOVEA_PC_LIBRARY ${library})
  string(REPLACE "_" "-" FOVEA_PC_NAME ${library})
  string(REPLACE "=" " = ${PROJECT_VERSION}" FOVEA_PC_REQUIRES "${FOVEA_PC_REQUIRES}")
  configure_file(cmake/fovea.pc.in ${PROJECT_BINARY_DIR}/package/${FOVEA_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${FOVEA_PC_NAME}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
# libzip is listed in Libs.private rather than Requires.private. Otherwise, pkg-config would require the private
# dependencies of libzip's static library, and Debian's package does not install all of them.
list(JOIN libzip_LDFLAGS " " libzip_flags)
fovea_pc(fovea "${PROJECT_DESCRIPTION}" "" "fmt libhwy" "${OpenMP_CXX_FLAGS}")
fovea_pc(fovea_files "Tensor files, for fovea" "fovea=" "fmt libutf8proc zlib" "${libzip_flags}")
fovea_pc(fovea_scene "Attention over a few words, for fovea" "fovea-files=" "fmt" "")
fovea_pc(fovea_recording "The attention of models in files, for fovea" "fovea-files=" "fmt libhwy" "")
fovea_pc(fovea_nn "Trainable layers, for fovea" "fovea-files=" "fmt libhwy" "-ldnnl ${OpenMP_CXX_FLAGS}")
# Without flags of MPI, which its compiler wrappers add.
fovea_pc(fovea_mpi "Attention over MPI, for fovea" "fovea=" "fmt" "")
fovea_pc(fovea_train "Training, for fovea" "fovea-nn=, fovea-scene=" "fmt" "${OpenMP_CXX_FLAGS}")
