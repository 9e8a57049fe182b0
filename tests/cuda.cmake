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

if(TARGET belfry_cuda)
  file(GLOB sources CONFIGURE_DEPENDS cuda/*_test.cc)
  add_library(cuda_tests_library SHARED ${sources})
  set_target_properties(cuda_tests_library PROPERTIES OUTPUT_NAME cuda_tests)
  target_compile_options(cuda_tests_library PRIVATE ${belfry_warnings} -O0)
  target_compile_definitions(cuda_tests_library PRIVATE ${test_definitions})
  target_include_directories(cuda_tests_library PRIVATE
    $<TARGET_PROPERTY:GTest::gmock,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(cuda_tests_library PRIVATE belfry_cuda)
  add_dependencies(cuda_tests cuda_tests_library)
  set_target_properties(cuda_tests PROPERTIES  # so that ctest hears of new tests
    LINK_DEPENDS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libcuda_tests.so)
  add_dependencies(framework_tests belfry_cuda)
endif()
belfry_discover_tests(cuda_tests)
