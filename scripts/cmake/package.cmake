# Installs the library, its headers as include/belfry/<folder>/..., and what find_package(belfry)
# reads; users link belfry::belfry.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS belfry EXPORT belfry)
if(TARGET belfry_cuda)
  install(TARGETS belfry_cuda)  # beside the library, which loads it
endif()
install(DIRECTORY ${belfry_folders} DESTINATION include/belfry
        FILES_MATCHING PATTERN "*.h" PATTERN cuda EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/include/belfry/belfry.h ${CMAKE_BINARY_DIR}/include/belfry/ops.h
        DESTINATION include/belfry)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/belfry)
install(EXPORT belfry NAMESPACE belfry:: FILE belfry-targets.cmake DESTINATION ${package_dir})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/belfry-config.cmake @ONLY CONTENT
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\${CMAKE_CURRENT_LIST_DIR}/belfry-targets.cmake)
")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/belfry-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/belfry-config.cmake
              ${CMAKE_BINARY_DIR}/belfry-config-version.cmake DESTINATION ${package_dir})
