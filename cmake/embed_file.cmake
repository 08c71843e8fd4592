# SPDX-License-Identifier: Apache-2.0
# Run by fovea_embed: writes the joined contents of the files INPUT to OUTPUT as raw string literals that define SYMBOL
# in NAMESPACE. Scripts, whose names become private, and styles are minified by ESBUILD. Literals longer than 64 KiB are
# not portable, so the text is split into pieces of 8,000 characters, which the compiler concatenates.

set(text "")
foreach(file IN LISTS INPUT)
  file(READ ${file} part)
  string(APPEND text "${part}")
endforeach()
if(INPUT MATCHES "\\.(js|css)$")
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
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "    R\"~~(${piece})~~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT} "#include <string_view>\n\nnamespace ${NAMESPACE} {\n\n"
  "extern const std::string_view ${SYMBOL};\nconst std::string_view ${SYMBOL} =\n${pieces}    \"\";\n\n"
  "}  // namespace ${NAMESPACE}\n")
