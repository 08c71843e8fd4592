# SPDX-License-Identifier: Apache-2.0
# Run by fovea_embed: writes the joined contents of the files INPUT to OUTPUT as raw string literals that define SYMBOL
# in NAMESPACE. Scripts and styles lose comments and indentation, which every page would otherwise carry.
# Literals longer than 64 KiB are not portable, so the text is split into pieces of 8,000 characters, which the
# compiler concatenates.

set(text "")
foreach(file IN LISTS INPUT)
  file(READ ${file} part)
  if(file MATCHES "\\.(js|css)$")
    string(REGEX REPLACE "\n *//[^\n]*" "" part "${part}")
    string(REGEX REPLACE "\n */\\*([^*]|\\*+[^*/])*\\*+/" "" part "${part}")
    string(REGEX REPLACE "  // [^\n]*" "" part "${part}")
    string(REGEX REPLACE "\n[\n ]+" "\n" part "${part}")
  endif()
  string(APPEND text "${part}")
endforeach()
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
