# SPDX-License-Identifier: Apache-2.0
# fovea_unity(TARGET [FOLDER]): compiles the source files of TARGET in groups, one per folder, or as one group named
# FOLDER, unless FOVEA_UNITY is off. Most of a small file's compile time is spent on headers and templates shared by
# all files of its folder; compiled together, they take a third of the time. Names in their unnamed namespaces must
# therefore differ (tests/names_test.py). Files that Highway compiles once per SIMD target are compiled separately.

function(fovea_unity target)
  if(NOT FOVEA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${base} OUTPUT_VARIABLE path)
    if(NOT path MATCHES "\\.cc$" OR NOT EXISTS ${path})
      continue()
    endif()
    file(STRINGS ${path} per_target REGEX "hwy/foreach_target\\.h" LIMIT_COUNT 1)
    if(NOT per_target)
      cmake_path(GET path PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      if(ARGC GREATER 1)
        set(folder ${ARGV1})
      endif()
      string(MAKE_C_IDENTIFIER ${folder} group)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
