# Installs the library, programs, sources of examples, headers as include/belfry/<folder>/..., and
# what find_package(belfry) and pkg-config read; users link belfry::belfry.
include(CMakePackageConfigHelpers)

set(op_test_names grad_check interpreter op_test parts)  # of tests/support

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
                         predict resnet resnet20 resnet50 train_bench vit)
  # They find the library beside them.
  set_target_properties(${installed_programs} PROPERTIES
                        INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ${installed_programs})
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(examples_dir ${CMAKE_SOURCE_DIR}/examples)
install(DIRECTORY ${examples_dir} DESTINATION ${CMAKE_INSTALL_DATADIR}/belfry)
# To read, and to begin a file of one's own with.
install(FILES ${name_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/belfry/names)
# Compares a step of a program with PyTorch.
install(FILES ${CMAKE_SOURCE_DIR}/scripts/torch_step.py DESTINATION ${CMAKE_INSTALL_DATADIR}/belfry/python)
# The checks of ops, as sources: programs compile them with the GoogleTest that they have.
list(TRANSFORM op_test_names REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/tests/support/\\1.cc"
     OUTPUT_VARIABLE op_test_sources)
install(FILES ${op_test_sources} DESTINATION ${CMAKE_INSTALL_DATADIR}/belfry/op_test)
# The public headers: belfry.h, which has the whole face, the models, and what an op or a strategy of
# one's own needs as well. Examples and the checks of ops may include more, which is installed for them
# alone.
set(public_headers belfry.h op_test.h predict.h framework/device/gpu_kernels.h framework/graph/op.h
                   framework/graph/kernel.h framework/graph/shards.h framework/kernels/counter.h
                   ops/kernels/pointwise_op.h allreduce/pieces.h trainers/data/decode_image.h
                   trainers/models/gpt.h trainers/models/models.h)
file(GLOB gpu_tools CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} framework/cuda/kernels/*.h
     framework/cuda/kernels/*.cuh)  # for GPU kernels of one's own
list(APPEND public_headers ${gpu_tools})
install(FILES ${identity} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/belfry)  # for gpu_kernels.cmake
install(CODE "set(INCLUDE \"${CMAKE_BINARY_DIR}/include\")
set(PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
set(SOURCES \"${examples_dir};${op_test_sources}\")
set(HEADERS ${public_headers})")
install(SCRIPT ${CMAKE_SOURCE_DIR}/scripts/cmake/install_headers.cmake)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/belfry)
install(EXPORT belfry NAMESPACE belfry:: FILE belfry-targets.cmake DESTINATION ${package_dir})
# In a folder that find_package() does not search: the build folder is a prefix for whoever has its
# bin/ on the PATH, and these files are good beside belfry-targets.cmake alone.
file(REMOVE ${CMAKE_BINARY_DIR}/belfry-config.cmake)  # of an earlier version
set(config_dir ${CMAKE_BINARY_DIR}/package)
file(RELATIVE_PATH to_op_test /${package_dir} /${CMAKE_INSTALL_DATADIR}/belfry/op_test)
file(RELATIVE_PATH to_libraries /${package_dir} /${CMAKE_INSTALL_LIBDIR})
set(architectures 90)  # what the GPU module has code for
if(CMAKE_CUDA_ARCHITECTURES)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
endif()
file(CONFIGURE OUTPUT ${config_dir}/belfry-config.cmake @ONLY CONTENT
"include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\${CMAKE_CURRENT_LIST_DIR}/belfry-targets.cmake)
# belfry::op_test: the checks of belfry/op_test.h; needs find_package(GTest).
if(NOT TARGET belfry::op_test)
  add_library(belfry::op_test INTERFACE IMPORTED)
  set(sources @op_test_names@)
  list(TRANSFORM sources REPLACE \"(.+)\" \"\${CMAKE_CURRENT_LIST_DIR}/@to_op_test@/\\\\1.cc\")
  set_target_properties(belfry::op_test PROPERTIES INTERFACE_SOURCES \"\${sources}\"
                        INTERFACE_LINK_LIBRARIES \"belfry::belfry;GTest::gtest\")
endif()
get_filename_component(belfry_gpu_module
  \${CMAKE_CURRENT_LIST_DIR}/@to_libraries@/libbelfry_cuda.so ABSOLUTE)
set(belfry_cuda_architectures @architectures@)
include(\${CMAKE_CURRENT_LIST_DIR}/gpu_kernels.cmake)
")
write_basic_package_version_file(${config_dir}/belfry-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${config_dir}/belfry-config.cmake ${config_dir}/belfry-config-version.cmake
              ${CMAKE_SOURCE_DIR}/scripts/cmake/gpu_kernels.cmake
        DESTINATION ${package_dir})

# For other build systems: pkg-config --cflags --libs belfry. Wherever the folder is moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix /${pkgconfig_dir} /)
file(CONFIGURE OUTPUT ${config_dir}/belfry.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@to_prefix@
Name: belfry
Description: Data-parallel training on many GPUs from C++
Version: @PROJECT_VERSION@
Cflags: -std=c++20 -ffp-contract=off -pthread -I\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L\${prefix}/@CMAKE_INSTALL_LIBDIR@ -lbelfry -pthread
")
install(FILES ${config_dir}/belfry.pc DESTINATION ${pkgconfig_dir})
