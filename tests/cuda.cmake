# cuda_tests: the tests of the GPU module. They need the libraries of CUDA, so they lie in a library
# that the program loads where the module can be loaded; elsewhere it skips each by its name. Without
# the module there is the program alone. The sanitizers do without.
if(NOT BELFRY_SANITIZE STREQUAL none)
  return()
endif()
add_executable(cuda_tests cuda/main.cc)
target_compile_options(cuda_tests PRIVATE ${test_options})
target_compile_definitions(cuda_tests PRIVATE ${test_definitions})
# All of GoogleTest is here, and the library finds it here.
set_target_properties(cuda_tests PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(cuda_tests PRIVATE belfry $<LINK_LIBRARY:WHOLE_ARCHIVE,GTest::gmock>
                                         GTest::gtest)

# gpu_ops_tests: the tests of ops with the kernels of the module, which run on the host.
add_executable(gpu_ops_tests cuda/ops_main.cc cuda/host_bits.cc cuda/host_bits_of_rooms.cc
                             cuda/kernels_of_ops.cc
                             $<TARGET_OBJECTS:ops_tests>)
target_compile_options(gpu_ops_tests PRIVATE ${test_options})
target_compile_definitions(gpu_ops_tests PRIVATE ${test_definitions})
target_link_libraries(gpu_ops_tests PRIVATE test_support belfry ${belfry_libraries} GTest::gtest
                                            GTest::gmock)

if(TARGET belfry_cuda)
  add_library(gpu_kernel_tests SHARED cuda/host_queue.cc cuda/host_recurrence.cc cuda/on_host.cc
                                      cuda/on_gpu.cc)
  target_compile_options(gpu_kernel_tests PRIVATE ${belfry_warnings})
  target_link_libraries(gpu_kernel_tests PRIVATE belfry_cuda)
  add_dependencies(gpu_ops_tests gpu_kernel_tests)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS framework/cuda/*_test.cc cuda/*_test.cc)
  add_library(cuda_tests_library SHARED ${sources} cuda/fake_nccl.cc)
  set_target_properties(cuda_tests_library PROPERTIES OUTPUT_NAME cuda_tests)
  target_compile_options(cuda_tests_library PRIVATE ${belfry_warnings} -O0)
  target_compile_definitions(cuda_tests_library PRIVATE ${test_definitions})
  target_include_directories(cuda_tests_library PRIVATE
    $<TARGET_PROPERTY:GTest::gmock,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(cuda_tests_library PRIVATE gpu_kernel_tests belfry_cuda)
  add_library(stand_in_driver SHARED cuda/stand_in_driver.cc)
  set_target_properties(stand_in_driver PROPERTIES NO_SONAME ON)
  target_link_options(stand_in_driver PRIVATE -Wl,-soname,libcuda.so.1)
  add_dependencies(cuda_tests cuda_tests_library stand_in_driver)
  # One convolution, in all fusions.
  add_test(NAME cudnn_engines
           COMMAND ${CMAKE_SOURCE_DIR}/scripts/cudnn_engines "--only=7 x 7 x 512, 3 x 3, 512")
  set_tests_properties(cudnn_engines PROPERTIES TIMEOUT 300 ENVIRONMENT BUILD=${CMAKE_BINARY_DIR}
    PASS_REGULAR_EXPRESSION "y {[^}]*\"engine\".*y, statistics {[^}]*\"engine\".*dw {[^}]*\"engine\""
    SKIP_REGULAR_EXPRESSION "cuDNN is older")
  set_target_properties(cuda_tests PROPERTIES  # so that ctest hears of new tests
    LINK_DEPENDS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libcuda_tests.so)
  add_dependencies(framework_tests belfry_cuda)

  # recorder_tests: the module with its outermost calls replaced. The program defines these, and
  # comes first where the module's symbols are looked up; it links no library of CUDA.
  file(GLOB sources CONFIGURE_DEPENDS recorder/*.cc)
  add_executable(recorder_tests ${sources})
  belfry_batches(recorder_tests 2)
  target_precompile_headers(recorder_tests REUSE_FROM test_headers)
  target_compile_options(recorder_tests PRIVATE ${test_options})
  target_compile_definitions(recorder_tests PRIVATE ${test_definitions})
  target_include_directories(recorder_tests SYSTEM PRIVATE
    $<TARGET_PROPERTY:belfry_cuda_libraries,INTERFACE_INCLUDE_DIRECTORIES>)
  set_target_properties(recorder_tests PROPERTIES ENABLE_EXPORTS ON)
  target_link_libraries(recorder_tests PRIVATE test_support belfry ${belfry_libraries}
                                               GTest::gtest GTest::gmock GTest::gtest_main)
  add_dependencies(recorder_tests belfry_cuda)
  belfry_discover_tests(recorder_tests)
endif()
belfry_discover_tests(cuda_tests)
belfry_discover_tests(gpu_ops_tests)
add_test(NAME gpu_ops_tests.own_kernels
         COMMAND gpu_ops_tests --gtest_filter=Conv2d*:AvgPool*:*Attention*:WholeRecurrences* --own_kernels --gtest_brief=1)
# A few by way of GpuBackend and its streams, as on a GPU, on one that is stood in for.
add_test(NAME gpu_ops_tests.stand_in
         COMMAND gpu_ops_tests --gtest_filter=Neg*:SgdUpdate*:BatchMoments*:Relu* --gtest_brief=1)
set_tests_properties(gpu_ops_tests.stand_in PROPERTIES ENVIRONMENT BELFRY_TEST_GPUS=stand_in:1)
