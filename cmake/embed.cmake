# SPDX-License-Identifier: Apache-2.0
# fovea_embed(TARGET FILE SYMBOL [NAMESPACE]): compiles the contents of FILE into TARGET as `const std::string_view
# SYMBOL` in NAMESPACE (default: fovea::scene). A change of FILE triggers a rebuild.

function(fovea_embed target file symbol)
  set(namespace fovea::scene)
  if(ARGC GREATER 3)
    set(namespace ${ARGV3})
  endif()
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${source} -DOUTPUT=${output} -DSYMBOL=${symbol} -DNAMESPACE=${namespace}
      -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
