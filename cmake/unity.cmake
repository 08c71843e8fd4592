# SPDX-License-Identifier: Apache-2.0
# fovea_unity(TARGET [FOLDER]): compiles the source files of TARGET in groups, one per folder, or as one group named
# FOLDER, unless FOVEA_UNITY is off. Most of a small file's compile time is spent on headers and templates shared by
# all files of its folder; compiled together, they take a third of the time. Names in their unnamed namespaces must
# therefore differ (tests/names_test.py). Files that Highway compiles once per SIMD target are compiled separately, and
# so are files with the property SKIP_UNITY_BUILD_INCLUSION, which those with options of their own need.
#
# CMake's own UNITY_BUILD writes its files into the folder of the target, which has another name if Fovea is a
# subdirectory of a project. Here they have the same path from the top of every build tree, so that builds share the
# objects that ccache has (tests/consumer).

function(fovea_unity target)
  # Even if a project around this one asks for it: the files per SIMD target must not be joined.
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  if(NOT FOVEA_UNITY)
    return()
  endif()
  set(groups "")
  get_target_property(sources ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${base} OUTPUT_VARIABLE path)
    get_source_file_property(skip ${path} TARGET_DIRECTORY ${target} SKIP_UNITY_BUILD_INCLUSION)
    if(NOT path MATCHES "\\.cc$" OR NOT EXISTS ${path} OR skip)
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
      if(NOT group IN_LIST groups)
        list(APPEND groups ${group})
        set(includes_${group} "")
      endif()
      string(APPEND includes_${group} "#include \"${path}\"\n")
      set_source_files_properties(${path} TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
  endforeach()
  foreach(group IN LISTS groups)
    set(together ${CMAKE_BINARY_DIR}/unity/${target}/${group}.cc)
    file(CONFIGURE OUTPUT ${together} CONTENT "${includes_${group}}" @ONLY)
    target_sources(${target} PRIVATE ${together})
  endforeach()
endfunction()
