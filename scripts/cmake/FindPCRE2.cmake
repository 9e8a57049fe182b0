# PCRE2 of 8-bit characters: the target PCRE2::PCRE2. Debian's package has no CMake package.
find_library(PCRE2_LIBRARY pcre2-8)
find_path(PCRE2_INCLUDE_DIR pcre2.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR)
if(PCRE2_FOUND AND NOT TARGET PCRE2::PCRE2)
  add_library(PCRE2::PCRE2 UNKNOWN IMPORTED GLOBAL)
  set_target_properties(PCRE2::PCRE2 PROPERTIES IMPORTED_LOCATION ${PCRE2_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${PCRE2_INCLUDE_DIR})
endif()
mark_as_advanced(PCRE2_LIBRARY PCRE2_INCLUDE_DIR)
