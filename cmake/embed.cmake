# SPDX-License-Identifier: Apache-2.0
# fovea_embed(TARGET FILES SYMBOL [NAMESPACE]): compiles the joined contents of FILES into TARGET as
# `const std::string_view SYMBOL` in NAMESPACE (default: fovea::scene). A change of a file triggers a rebuild.

function(fovea_embed target files symbol)
  set(namespace fovea::scene)
  if(ARGC GREATER 3)
    set(namespace ${ARGV3})
  endif()
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DINPUT=${files}" -DOUTPUT=${output} -DSYMBOL=${symbol} -DNAMESPACE=${namespace}
        "-DESBUILD=${ESBUILD}"
      -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# fovea_bundle(TARGET ENTRY FILES SYMBOL NAMESPACE): compiles the module ENTRY and what it imports, as one minified
# module, into TARGET in the same way. FILES are all files that it may import.
function(fovea_bundle target entry files symbol namespace)
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_CURRENT_SOURCE_DIR}/${entry} -DBUNDLE=ON -DOUTPUT=${output}
        -DSYMBOL=${symbol} -DNAMESPACE=${namespace} "-DESBUILD=${ESBUILD}"
      -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
