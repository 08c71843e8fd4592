# SPDX-License-Identifier: Apache-2.0
# Finds MPI as MPI::MPI_CXX, without its obsolete C++ bindings. Used by the build and by foveaConfig.cmake.

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(TARGET MPI::MPI_CXX)
  get_target_property(_fovea_mpi_libraries MPI::MPI_CXX INTERFACE_LINK_LIBRARIES)
  list(FILTER _fovea_mpi_libraries EXCLUDE REGEX "mpi_cxx")
  set_target_properties(MPI::MPI_CXX PROPERTIES INTERFACE_LINK_LIBRARIES "${_fovea_mpi_libraries}")
  unset(_fovea_mpi_libraries)
endif()
