# The module of MPI, libbelfry_mpi.so, where an MPI is found. BELFRY_MPI says what to do where there
# is none: AUTO does without, ON stops, OFF does not look.
set(no_mpi_module "BELFRY_MPI is OFF")
if(NOT BELFRY_MPI STREQUAL OFF)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS CXX)
  set(no_mpi_module "no MPI was found; install libopenmpi-dev and openmpi-bin, and configure anew")
  if(NOT MPI_CXX_FOUND AND BELFRY_MPI STREQUAL ON)
    message(FATAL_ERROR "BELFRY_MPI is ON, but ${no_mpi_module}")
  endif()
endif()

if(NOT MPI_CXX_FOUND OR BELFRY_MPI STREQUAL OFF)
  message(STATUS "MPI: none (${no_mpi_module})")
  set_property(SOURCE framework/group/mpi_module.cc APPEND PROPERTY COMPILE_DEFINITIONS
               "BELFRY_NO_MPI_MODULE=\"${no_mpi_module}\"")
  return()
endif()

message(STATUS "MPI ${MPI_CXX_VERSION}: ${MPI_CXX_LIBRARIES}")
add_library(belfry_mpi MODULE framework/mpi/mpi_group.cc)
target_compile_options(belfry_mpi PRIVATE ${belfry_public_options} ${belfry_warnings})
target_include_directories(belfry_mpi PRIVATE ${CMAKE_BINARY_DIR}/generated)
target_include_directories(belfry_mpi SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
target_link_libraries(belfry_mpi PRIVATE belfry ${MPI_CXX_LIBRARIES})
add_dependencies(belfry_mpi belfry_identity)
