# The libraries that Belfry stands on. All are Debian packages; scripts/setup installs them. What is
# not installed is taken from the folder BELFRY_THIRD_PARTY, which scripts/gather_dependencies fills.
# Without oneDNN, LAPACK or kissfft, slower kernels serve.
set(BELFRY_THIRD_PARTY ${CMAKE_SOURCE_DIR}/third_party CACHE PATH
    "Copies of libraries, for where they are not installed")

# belfry_copied(NAME): makes the targets of a CMake package from BELFRY_THIRD_PARTY; sets NAME_FOUND.
function(belfry_copied name)
  set(include ${BELFRY_THIRD_PARTY}/include)
  set(sources ${BELFRY_THIRD_PARTY}/googletest)
  if(name STREQUAL spdlog AND EXISTS ${include}/spdlog AND EXISTS ${include}/fmt)
    add_library(spdlog::spdlog INTERFACE IMPORTED GLOBAL)
    target_include_directories(spdlog::spdlog INTERFACE ${include})
    target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
  elseif(name STREQUAL nlohmann_json AND EXISTS ${include}/nlohmann)
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
    target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${include})
  elseif(name STREQUAL ZLIB AND EXISTS ${include}/zlib.h)
    add_library(ZLIB::ZLIB SHARED IMPORTED GLOBAL)
    set_target_properties(ZLIB::ZLIB PROPERTIES
      IMPORTED_LOCATION ${BELFRY_THIRD_PARTY}/lib/libz.so.1
      INTERFACE_INCLUDE_DIRECTORIES ${include})
  elseif(name STREQUAL JPEG AND EXISTS ${include}/jpeglib.h)
    add_library(JPEG::JPEG SHARED IMPORTED GLOBAL)
    set_target_properties(JPEG::JPEG PROPERTIES
      IMPORTED_LOCATION ${BELFRY_THIRD_PARTY}/lib/libjpeg.so.62
      INTERFACE_INCLUDE_DIRECTORIES ${include})
  elseif(name STREQUAL PNG AND EXISTS ${include}/png.h)
    add_library(PNG::PNG SHARED IMPORTED GLOBAL)
    set_target_properties(PNG::PNG PROPERTIES
      IMPORTED_LOCATION ${BELFRY_THIRD_PARTY}/lib/libpng16.so.16
      INTERFACE_INCLUDE_DIRECTORIES ${include})
  elseif(name STREQUAL PCRE2 AND EXISTS ${include}/pcre2.h)
    add_library(PCRE2::PCRE2 SHARED IMPORTED GLOBAL)
    set_target_properties(PCRE2::PCRE2 PROPERTIES
      IMPORTED_LOCATION ${BELFRY_THIRD_PARTY}/lib/libpcre2-8.so.0
      INTERFACE_INCLUDE_DIRECTORIES ${include})
  elseif(name STREQUAL Deflate AND EXISTS ${include}/libdeflate.h)
    add_library(Deflate::Deflate SHARED IMPORTED GLOBAL)
    set_target_properties(Deflate::Deflate PROPERTIES
      IMPORTED_LOCATION ${BELFRY_THIRD_PARTY}/lib/libdeflate.so.0
      INTERFACE_INCLUDE_DIRECTORIES ${include})
  elseif(name STREQUAL xxHash AND EXISTS ${include}/xxhash.h)
    add_library(xxHash::xxHash INTERFACE IMPORTED GLOBAL)
    target_include_directories(xxHash::xxHash INTERFACE ${include})
  elseif(name STREQUAL GTest AND EXISTS ${sources})
    foreach(library gtest gmock gtest_main)
      string(REGEX REPLACE "^g(test|mock).*" "google\\1" folder ${library})
      string(REGEX REPLACE "^(gtest|gmock)$" "\\1-all" source ${library})
      add_library(${library} STATIC EXCLUDE_FROM_ALL ${sources}/${folder}/src/${source}.cc)
      target_include_directories(${library} PRIVATE ${sources}/${folder}
                                 SYSTEM PUBLIC ${sources}/${folder}/include)
      target_link_libraries(${library} PUBLIC Threads::Threads)
      add_library(GTest::${library} ALIAS ${library})
    endforeach()
    target_link_libraries(gmock PUBLIC gtest)
    target_link_libraries(gtest_main PUBLIC gtest)
  else()
    return()
  endif()
  set(${name}_FOUND TRUE PARENT_SCOPE)
  message(STATUS "${name}: that of ${BELFRY_THIRD_PARTY}")
endfunction()

# belfry_find(NAME DEBIAN_PACKAGE): finds a CMake package or says how to get it.
macro(belfry_find name debian_package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    belfry_copied(${name})
  endif()
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} is missing: install the Debian package ${debian_package}, "
                        "or run scripts/setup, which installs all that Belfry needs")
  endif()
endmacro()

belfry_find(Threads libc6-dev)
belfry_find(spdlog libspdlog-dev)
belfry_find(nlohmann_json nlohmann-json3-dev)
belfry_find(ZLIB zlib1g-dev)
belfry_find(JPEG libjpeg62-turbo-dev)
belfry_find(PNG libpng-dev)
belfry_find(PCRE2 libpcre2-dev)
belfry_find(Deflate libdeflate-dev)
belfry_find(xxHash libxxhash-dev)
if(BELFRY_TESTS)
  belfry_find(GTest "libgtest-dev libgmock-dev")
endif()
set(belfry_libraries spdlog::spdlog nlohmann_json::nlohmann_json ZLIB::ZLIB
                     Deflate::Deflate JPEG::JPEG PNG::PNG PCRE2::PCRE2 xxHash::xxHash)

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

# belfry_find_lapack(PROBLEM): the same for LAPACK, whose routines have the names that gfortran gives
# them, and no header.
function(belfry_find_lapack problem)
  find_library(lapack_library lapack)
  find_library(blas_library blas)
  if(NOT lapack_library OR NOT blas_library)
    set(${problem} "not found; install liblapack-dev" PARENT_SCOPE)
    return()
  endif()
  add_library(belfry_lapack INTERFACE IMPORTED GLOBAL)
  target_link_libraries(belfry_lapack INTERFACE ${lapack_library} ${blas_library})
  message(STATUS "LAPACK: ${lapack_library}")
endfunction()

# belfry_find_kissfft(PROBLEM): the same for kissfft, of which Belfry uses a header alone.
function(belfry_find_kissfft problem)
  find_path(kissfft_include kissfft.hh PATH_SUFFIXES kissfft HINTS ${BELFRY_THIRD_PARTY}/include)
  if(NOT kissfft_include)
    set(${problem} "not found; install libkissfft-dev" PARENT_SCOPE)
    return()
  endif()
  add_library(belfry_kissfft INTERFACE IMPORTED GLOBAL)
  message(STATUS "kissfft: ${kissfft_include}")
endfunction()

foreach(name oneDNN LAPACK kissfft)
  string(TOUPPER ${name} option)
  string(TOLOWER ${name} library)
  if(NOT BELFRY_${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "BELFRY_${option} is AUTO, ON or OFF, not ${BELFRY_${option}}")
  elseif(BELFRY_${option} STREQUAL OFF)
    continue()
  endif()
  cmake_language(CALL belfry_find_${library} problem)
  if(NOT TARGET belfry_${library} AND BELFRY_${option} STREQUAL ON)
    message(FATAL_ERROR "BELFRY_${option}=ON, but ${name} is unfit: ${problem}")
  elseif(NOT TARGET belfry_${library})
    message(WARNING "${name}: ${problem}. The slower reference kernels serve "
                    "(-DBELFRY_${option}=OFF says so without this warning)")
  endif()
endforeach()
if(TARGET belfry_onednn)
  list(APPEND belfry_libraries belfry_onednn)
endif()
