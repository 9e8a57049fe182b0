# Installed next to belfry-config.cmake, which includes it.
#
# belfry_add_gpu_kernels(TARGET FILE.cu...): GPU kernels of ops that TARGET defines, a program or a shared
# library. The files become the library TARGET_gpu.so next to TARGET, which Belfry loads with its GPU
# module; install it to the folder of TARGET. Where Belfry has no GPU module, or no nvcc is found, nothing
# is built: the program then runs on CPUs. CMAKE_CUDA_COMPILER or CUDACXX may name nvcc, and
# CMAKE_CUDA_ARCHITECTURES what it generates code for.

# belfry_gpu_kernels_missing(NAME): why no GPU kernels can be built, else "" and belfry_nvcc.
function(belfry_gpu_kernels_missing name)
  set(${name} "" PARENT_SCOPE)
  if(NOT EXISTS "${belfry_gpu_module}")
    set(${name} "this Belfry has no GPU module" PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(belfry_nvcc ${CMAKE_CUDA_COMPILER})
  elseif(DEFINED ENV{CUDACXX})
    set(belfry_nvcc $ENV{CUDACXX})
  else()
    find_program(belfry_nvcc nvcc HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} /usr/local/cuda
                 PATH_SUFFIXES bin DOC "The compiler of CUDA")
  endif()
  if(NOT belfry_nvcc)
    set(${name} "nvcc is not found; CUDACXX may name it" PARENT_SCOPE)
  endif()
  set(belfry_nvcc ${belfry_nvcc} PARENT_SCOPE)
endfunction()

function(belfry_add_gpu_kernels target)
  belfry_gpu_kernels_missing(missing)
  if(missing)
    message(STATUS "${target}: no GPU kernels (${missing})")
    return()
  endif()
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  if(NOT architectures)
    set(architectures ${belfry_cuda_architectures})
  endif()
  set(options -std=c++20 -fmad=false -Xcompiler=-fPIC,-ffp-contract=off -ccbin ${CMAKE_CXX_COMPILER})
  foreach(architecture ${architectures})
    if(architecture MATCHES "^([0-9]+[a-z]?)")
      set(number ${CMAKE_MATCH_1})
      list(APPEND options -gencode arch=compute_${number},code=[compute_${number},sm_${number}])
    else()
      list(APPEND options -arch=${architecture})  # native, all, all-major
    endif()
  endforeach()
  set(folders "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
  set(belfry_include "$<TARGET_PROPERTY:belfry::belfry,INTERFACE_INCLUDE_DIRECTORIES>")

  set(objects "")
  foreach(file ${ARGN})
    get_filename_component(source ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_gpu.${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM
      COMMAND_EXPAND_LISTS
      COMMAND ${belfry_nvcc} ${options} -MD -MF ${object}.d -MT ${object}
              "$<$<BOOL:${folders}>:-I$<JOIN:${folders},;-I>>" "-I$<JOIN:${belfry_include},;-I>"
              -c ${source} -o ${object})
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

  set(entry ${CMAKE_CURRENT_BINARY_DIR}/${target}_gpu.cc)
  file(CONFIGURE OUTPUT ${entry} CONTENT
"#include \"belfry/belfry_build_identity.h\"
extern \"C\" const char* belfry_gpu_kernels() { return BELFRY_BUILD_IDENTITY; }
")
  add_library(${target}_gpu MODULE ${entry} ${objects})
  get_filename_component(module_folder ${belfry_gpu_module} DIRECTORY)
  # The symbols of nvcc's runtime are those that the module uses.
  target_link_libraries(${target}_gpu PRIVATE belfry::belfry ${belfry_gpu_module})
  target_link_options(${target}_gpu PRIVATE -Wl,--allow-shlib-undefined)
  set_target_properties(${target}_gpu PROPERTIES
    PREFIX "" LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:${target}> BUILD_RPATH ${module_folder})

  set(registration ${CMAKE_CURRENT_BINARY_DIR}/${target}_gpu_kernels.cc)
  file(CONFIGURE OUTPUT ${registration} CONTENT
"#include \"belfry/framework/device/gpu_kernels.h\"
static const belfry::GpuKernelsRegistration kernels(\"${target}_gpu.so\");
")
  target_sources(${target} PRIVATE ${registration})
  # The kernels use the ops of the program.
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(${target} ${target}_gpu)
endfunction()
