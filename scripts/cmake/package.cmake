# Installs the library, programs, sources of examples, headers as include/belfry/<folder>/..., and
# what find_package(belfry) reads; users link belfry::belfry.
include(CMakePackageConfigHelpers)

install(TARGETS belfry EXPORT belfry)
if(TARGET belfry_cuda)
  install(TARGETS belfry_cuda)  # beside the library, which loads it
endif()
if(TARGET belfry_mpi)
  install(TARGETS belfry_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(NOT BELFRY_SANITIZE STREQUAL thread)  # where programs are built only when named
  # Those that documents call by their names. The others show code, in the sources below.
  set(installed_programs belfry_command allreduce_bench gpt linear_regression mnist peak_bench
                         predict resnet20 resnet50 train_bench)
  # They find the library beside them.
  set_target_properties(${installed_programs} PROPERTIES
                        INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ${installed_programs})
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(examples_dir ${CMAKE_SOURCE_DIR}/examples)
install(DIRECTORY ${examples_dir} DESTINATION ${CMAKE_INSTALL_DATADIR}/belfry)
# The public headers: belfry.h, which has the whole face, the models, and what an op or a strategy of
# one's own needs as well. Examples may include more, which is installed for them alone.
set(public_headers belfry.h framework/graph/op.h framework/graph/kernel.h
                   ops/kernels/pointwise_op.h allreduce/pieces.h trainers/models/models.h)
install(CODE "set(INCLUDE \"${CMAKE_BINARY_DIR}/include\")
set(PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
set(EXAMPLES \"${examples_dir}\")
set(HEADERS ${public_headers})")
install(SCRIPT ${CMAKE_SOURCE_DIR}/scripts/cmake/install_headers.cmake)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/belfry)
install(EXPORT belfry NAMESPACE belfry:: FILE belfry-targets.cmake DESTINATION ${package_dir})
# In a folder that find_package() does not search: the build folder is a prefix for whoever has its
# bin/ on the PATH, and these files are good beside belfry-targets.cmake alone.
file(REMOVE ${CMAKE_BINARY_DIR}/belfry-config.cmake)  # of an earlier version
set(config_dir ${CMAKE_BINARY_DIR}/package)
file(CONFIGURE OUTPUT ${config_dir}/belfry-config.cmake @ONLY CONTENT
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\${CMAKE_CURRENT_LIST_DIR}/belfry-targets.cmake)
")
write_basic_package_version_file(${config_dir}/belfry-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${config_dir}/belfry-config.cmake ${config_dir}/belfry-config-version.cmake
        DESTINATION ${package_dir})
