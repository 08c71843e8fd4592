# SPDX-License-Identifier: Apache-2.0
# Man pages and completion scripts of the command line. The built programs print them, and they are installed in the
# folders searched by man and the shells. Omitted when cross-compiling without an emulator.

if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "Not installed: man pages and completions, which need an emulator to run the programs")
  return()
endif()

set(manual ${PROJECT_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${manual})
set(manual_files)
# print(FILE PROGRAM ARGUMENT...): creates FILE from the program's output.
function(print file program)
  add_custom_command(OUTPUT ${manual}/${file} COMMAND ${program} ${ARGN} > ${manual}/${file}
    DEPENDS ${program} VERBATIM)
  set(manual_files ${manual_files} ${manual}/${file} PARENT_SCOPE)
endfunction()

print(fovea.1 fovea_cli --man)
print(fovea-bench.1 fovea_bench --man)
# Each command has a help text; that of `fovea train scene` is train_scene.txt.
file(GLOB texts CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/cli/pages ${PROJECT_SOURCE_DIR}/cli/pages/*.txt)
list(REMOVE_ITEM texts exit_status.txt fovea.txt)
if(NOT FOVEA_NN)
  list(FILTER texts EXCLUDE REGEX "^(train|translate)")
endif()
if(NOT FOVEA_VIEW)
  list(REMOVE_ITEM texts view.txt)
endif()
foreach(text IN LISTS texts)
  cmake_path(GET text STEM command)
  string(REPLACE "_" "-" page "fovea-${command}.1")
  string(REPLACE "_" ";" words "${command}")
  print(${page} fovea_cli ${words} --man)
endforeach()
set(pages ${manual_files})
print(fovea fovea_cli completion bash)
print(_fovea fovea_cli completion zsh)
print(fovea.fish fovea_cli completion fish)
add_custom_target(fovea_manual ALL DEPENDS ${manual_files})

install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${manual}/fovea DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${manual}/_fovea DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${manual}/fovea.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
