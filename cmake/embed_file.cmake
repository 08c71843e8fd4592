# SPDX-License-Identifier: Apache-2.0
# Run by fovea_embed: writes the joined contents of the files INPUT to OUTPUT as a raw string literal that defines
# SYMBOL in NAMESPACE. Scripts, whose names become private, and styles are minified by ESBUILD. With BUNDLE, INPUT is
# one module, which ESBUILD joins with those that it imports.

set(text "")
if(BUNDLE)
  execute_process(COMMAND ${ESBUILD} --bundle --minify --format=esm --target=es2022 --log-level=warning ${INPUT}
    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
else()
  foreach(file IN LISTS INPUT)
    file(READ ${file} part)
    string(APPEND text "${part}")
  endforeach()
endif()
if(NOT BUNDLE AND INPUT MATCHES "\\.(js|css)$")
  set(kind ${CMAKE_MATCH_1})
  set(options --minify)
  if(kind STREQUAL js)
    set(text "\"use strict\";\n${text}")
    list(APPEND options --format=iife)
  endif()
  file(WRITE ${OUTPUT}.${kind} "${text}")
  execute_process(COMMAND ${ESBUILD} ${options} ${OUTPUT}.${kind}
    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "]]>" "]] >" text "${text}")  # would end the CDATA section of a page
endif()
# Compilers that follow the standard to the letter warn about literals of more than 64 KiB; GCC and Clang accept them.
file(WRITE ${OUTPUT} "#include <string_view>\n\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n\n"
  "namespace ${NAMESPACE} {\n\nextern const std::string_view ${SYMBOL};\n"
  "const std::string_view ${SYMBOL} =\n    R\"~~(${text})~~\";\n\n}  // namespace ${NAMESPACE}\n")
