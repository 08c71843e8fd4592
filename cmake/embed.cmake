# SPDX-License-Identifier: Apache-2.0
# fovea_embed(TARGET FILE SYMBOL): compiles FILE into TARGET as `const std::string_view SYMBOL` in
# namespace fovea::scene. A changed file triggers a rebuild.

function(fovea_embed target file symbol)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${source} -DOUTPUT=${output} -DSYMBOL=${symbol}
      -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
