# SPDX-License-Identifier: Apache-2.0
# fovea_library(NAME FOLDERS... [DEPENDS NAMES...] [PRIVATE TARGETS...] [COMPILE TARGETS...]): one library of
# the family. Its folders are compiled once, and archived twice:
#   fovea::NAME_static, fovea::NAME_shared   and fovea::NAME, which of the two BUILD_SHARED_LIBS says
# The library named fovea is fovea::static, fovea::shared and fovea::fovea. DEPENDS are libraries of the
# family, whose headers this one's users may include; PRIVATE is what the code links to, COMPILE what only
# compiling it needs. Each folder's CMakeLists.txt lists its sources. cmake/install.cmake installs what
# FOVEA_LIBRARIES lists.

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
  # Exported is what FOVEA_API marks (fovea/export.h), and nothing of other libraries.
  set_target_properties(${FOVEA_OBJECTS} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

  add_library(${base}_static STATIC $<TARGET_OBJECTS:${FOVEA_OBJECTS}>)
  add_library(${base}_shared SHARED $<TARGET_OBJECTS:${FOVEA_OBJECTS}>)
  target_link_options(${base}_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exported.map)
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
    # Libraries of the family lie beside each other, and find each other wherever they are copied.
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

  set(FOVEA_LIBRARIES ${FOVEA_LIBRARIES} ${name} PARENT_SCOPE)
endfunction()
