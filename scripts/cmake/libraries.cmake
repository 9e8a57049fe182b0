# The libraries that Belfry stands on. All are Debian packages; scripts/setup installs them.

# belfry_find(NAME DEBIAN_PACKAGE): finds a CMake package or says how to get it.
macro(belfry_find name debian_package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} is missing: install the Debian package ${debian_package}, "
                        "or run scripts/setup, which installs all that Belfry needs")
  endif()
endmacro()

belfry_find(Threads libc6-dev)
belfry_find(spdlog libspdlog-dev)
belfry_find(CLI11 libcli11-dev)
belfry_find(nlohmann_json nlohmann-json3-dev)
belfry_find(ZLIB zlib1g-dev)
if(BELFRY_TESTS)
  belfry_find(GTest "libgtest-dev libgmock-dev")
endif()
set(belfry_libraries spdlog::spdlog CLI11::CLI11 nlohmann_json::nlohmann_json ZLIB::ZLIB)

# belfry_find_onednn(PROBLEM): makes the target belfry_onednn, or sets PROBLEM to why it cannot. By
# library and header: Debian's CMake package of oneDNN demands OpenCL headers.
function(belfry_find_onednn problem)
  find_library(onednn_library dnnl)
  find_path(onednn_include oneapi/dnnl/dnnl_version.h)
  # The limit of OpenMP threads is per thread and is set around every call of oneDNN.
  find_library(gomp_library NAMES gomp libgomp.so.1 HINTS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
  foreach(part onednn_library onednn_include gomp_library)
    if(NOT ${part})
      set(${problem} "not found; install libdnnl-dev" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  # Version 3 has another interface.
  file(STRINGS ${onednn_include}/oneapi/dnnl/dnnl_version.h version
       REGEX "define DNNL_VERSION_M(AJOR|INOR) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" version "${version}")
  if(NOT version MATCHES "^2\\.")
    set(${problem} "version ${version} found, 2.x needed" PARENT_SCOPE)
    return()
  endif()
  add_library(belfry_onednn INTERFACE IMPORTED GLOBAL)
  target_include_directories(belfry_onednn INTERFACE ${onednn_include})
  target_link_libraries(belfry_onednn INTERFACE ${onednn_library} ${gomp_library})
  target_compile_definitions(belfry_onednn INTERFACE BELFRY_ONEDNN=1)
  message(STATUS "oneDNN ${version}: ${onednn_library}")
endfunction()

if(NOT BELFRY_ONEDNN MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "BELFRY_ONEDNN is AUTO, ON or OFF, not ${BELFRY_ONEDNN}")
elseif(NOT BELFRY_ONEDNN STREQUAL OFF)
  belfry_find_onednn(onednn_problem)
  if(TARGET belfry_onednn)
    list(APPEND belfry_libraries belfry_onednn)
  elseif(BELFRY_ONEDNN STREQUAL ON)
    message(FATAL_ERROR "BELFRY_ONEDNN=ON, but oneDNN is unfit: ${onednn_problem}")
  else()
    message(WARNING "oneDNN: ${onednn_problem}. The slower reference kernels serve "
                    "(-DBELFRY_ONEDNN=OFF says so without this warning)")
  endif()
endif()
