# SPDX-License-Identifier: Apache-2.0
# Run by fovea_embed: writes INPUT into OUTPUT as raw string literals, SYMBOL in NAMESPACE. A literal
# longer than 64 KiB is not portable, so the text is cut into pieces of 8,000 characters, which the
# compiler joins.

file(READ ${INPUT} text)
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
