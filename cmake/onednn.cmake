# SPDX-License-Identifier: Apache-2.0
# Defines DNNL::dnnl if oneDNN is found, for Fovea's build and for users of an installed Fovea. Debian's CMake package
# of oneDNN is not used, because it requires OpenCL headers, which Fovea does not need.

if(NOT TARGET DNNL::dnnl)
  find_path(dnnl_INCLUDE_DIR dnnl.h)
  find_library(dnnl_LIBRARY dnnl)
  mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)
  if(dnnl_INCLUDE_DIR AND dnnl_LIBRARY)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${dnnl_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${dnnl_INCLUDE_DIR})
  endif()
endif()
