# The GPU module, libbelfry_cuda.so, where CUDA 12 or 13, cuDNN 9 and the header of NCCL are found;
# the library of NCCL is opened at run time. BELFRY_CUDA says what to do where they are not.
#
# Looked for, in this order: what CMAKE_CUDA_COMPILER, CUDACXX, CUDAToolkit_ROOT, CUDNN_ROOT and
# NCCL_ROOT name; /usr/local/cuda; the Python packages nvidia-*, which have libraries by versioned
# names alone; the system.

# belfry_nvidia_packages(FOLDERS): the folders nvidia/* among the packages of python3.
function(belfry_nvidia_packages folders)
  execute_process(
    COMMAND python3 -c "import glob, sys
print(';'.join(sorted(f for p in sys.path if p for f in glob.glob(p + '/nvidia/*/'))), end='')"
    OUTPUT_VARIABLE found ERROR_QUIET TIMEOUT 20)
  set(${folders} "${found}" PARENT_SCOPE)
endfunction()

# belfry_find_nvcc(FOLDERS): sets belfry_nvcc, and nvcc_major to its version if it serves.
function(belfry_find_nvcc)
  if(CMAKE_CUDA_COMPILER)
    set(belfry_nvcc ${CMAKE_CUDA_COMPILER})
  elseif(DEFINED ENV{CUDACXX})
    set(belfry_nvcc $ENV{CUDACXX})
  else()
    find_program(belfry_nvcc nvcc
      HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} /usr/local/cuda ${ARGN}
      PATH_SUFFIXES bin DOC "The compiler of CUDA")
  endif()
  if(belfry_nvcc)
    execute_process(COMMAND ${belfry_nvcc} --version OUTPUT_VARIABLE version ERROR_QUIET)
    if(version MATCHES "release (1[23])\\.")
      set(nvcc_major ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
  set(belfry_nvcc "${belfry_nvcc}" PARENT_SCOPE)
endfunction()

# belfry_find_cuda(MISSING): sets MISSING to what is not found, in words; else makes the target
# belfry_cuda_libraries and sets belfry_nvcc and belfry_cuda_rpath.
function(belfry_find_cuda missing)
  belfry_nvidia_packages(packages)
  belfry_find_nvcc(${packages})
  set(absent "")
  if(NOT nvcc_major)
    list(APPEND absent "nvcc 12 or 13")
    set(nvcc_major 13)
  endif()
  get_filename_component(nvcc_file "${belfry_nvcc}" REALPATH)
  set(toolkit "")
  foreach(file ${belfry_nvcc} ${nvcc_file})
    get_filename_component(folder ${file} DIRECTORY)
    list(APPEND toolkit ${folder}/.. ${folder}/../targets/x86_64-linux)
  endforeach()
  set(folders ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} ${toolkit} ${packages})
  set(cudnn_folders ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${folders})
  set(nccl_folders ${NCCL_ROOT} $ENV{NCCL_ROOT} ${folders})

  find_path(BELFRY_CUDART_INCLUDE cuda_runtime_api.h HINTS ${folders} PATH_SUFFIXES include)
  find_path(BELFRY_CUBLASLT_INCLUDE cublasLt.h HINTS ${folders} PATH_SUFFIXES include)
  find_path(BELFRY_CUDNN_INCLUDE cudnn_v9.h HINTS ${cudnn_folders} PATH_SUFFIXES include)
  find_path(BELFRY_NCCL_INCLUDE nccl.h HINTS ${nccl_folders} PATH_SUFFIXES include)
  find_path(BELFRY_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${folders} PATH_SUFFIXES include)
  find_library(BELFRY_CUDART_LIBRARY libcudart.so.${nvcc_major}
               HINTS ${folders} PATH_SUFFIXES lib64 lib)
  find_library(BELFRY_CUBLASLT_LIBRARY libcublasLt.so.${nvcc_major}
               HINTS ${folders} PATH_SUFFIXES lib64 lib)
  find_library(BELFRY_CUDNN_LIBRARY libcudnn.so.9 HINTS ${cudnn_folders} PATH_SUFFIXES lib64 lib)
  find_library(BELFRY_NCCL_LIBRARY libnccl.so.2 HINTS ${nccl_folders} PATH_SUFFIXES lib64 lib)
  mark_as_advanced(BELFRY_CUDART_INCLUDE BELFRY_CUBLASLT_INCLUDE BELFRY_CUDNN_INCLUDE
                   BELFRY_NCCL_INCLUDE BELFRY_NVTX_INCLUDE BELFRY_CUDART_LIBRARY BELFRY_CUBLASLT_LIBRARY
                   BELFRY_CUDNN_LIBRARY BELFRY_NCCL_LIBRARY)

  set(rpath "")
  foreach(name CUDART CUBLASLT CUDNN NCCL)
    if(NOT BELFRY_${name}_INCLUDE OR NOT (BELFRY_${name}_LIBRARY OR name STREQUAL NCCL))
      list(APPEND absent ${name})
    endif()
    if(BELFRY_${name}_LIBRARY)
      get_filename_component(folder ${BELFRY_${name}_LIBRARY} DIRECTORY)
      list(APPEND rpath ${folder})
    endif()
  endforeach()
  string(REPLACE CUDART "the CUDA runtime" absent "${absent}")
  string(REPLACE CUBLASLT cuBLASLt absent "${absent}")
  string(REPLACE CUDNN "cuDNN 9" absent "${absent}")
  string(REPLACE NCCL "nccl.h" absent "${absent}")
  list(JOIN absent ", " absent)
  set(${missing} "${absent}" PARENT_SCOPE)
  if(absent)
    return()
  endif()

  list(REMOVE_DUPLICATES rpath)
  set(belfry_cuda_rpath ${rpath} PARENT_SCOPE)
  set(belfry_nvcc ${belfry_nvcc} PARENT_SCOPE)
  add_library(belfry_cuda_libraries INTERFACE IMPORTED GLOBAL)
  target_include_directories(belfry_cuda_libraries INTERFACE
    ${BELFRY_CUDART_INCLUDE} ${BELFRY_CUBLASLT_INCLUDE} ${BELFRY_CUDNN_INCLUDE}
    ${BELFRY_NCCL_INCLUDE})
  target_link_libraries(belfry_cuda_libraries INTERFACE
    ${BELFRY_CUDART_LIBRARY} ${BELFRY_CUBLASLT_LIBRARY} ${BELFRY_CUDNN_LIBRARY} ${CMAKE_DL_LIBS})
endfunction()

set(no_gpu_module "")  # why there is none
if(NOT BELFRY_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "BELFRY_CUDA is AUTO, ON or OFF, not ${BELFRY_CUDA}")
elseif(BELFRY_CUDA STREQUAL OFF)
  set(no_gpu_module "BELFRY_CUDA=OFF")
elseif(NOT BELFRY_SANITIZE STREQUAL none)
  if(BELFRY_CUDA STREQUAL ON)
    message(FATAL_ERROR "BELFRY_CUDA=ON, but CUDA does not work under BELFRY_SANITIZE="
                        "${BELFRY_SANITIZE}")
  endif()
  set(no_gpu_module "BELFRY_SANITIZE=${BELFRY_SANITIZE}")
else()
  if(NOT DEFINED ENV{CUDAHOSTCXX} AND NOT CMAKE_CUDA_HOST_COMPILER)  # one compiler for both
    set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "What the GPU module has code for: 90 is H100, H200")
  belfry_find_cuda(missing)
  if(BELFRY_CUDA STREQUAL ON AND missing)
    message(FATAL_ERROR
      "BELFRY_CUDA=ON, but these are not found: ${missing}. Name the folders that hold bin/, "
      "include/ and lib/ by CUDAToolkit_ROOT (or nvcc itself by CUDACXX), CUDNN_ROOT and NCCL_ROOT")
  elseif(missing)
    set(no_gpu_module "BELFRY_CUDA=AUTO did not find: ${missing}")
  elseif(BELFRY_CUDA STREQUAL AUTO)
    include(CheckLanguage)  # an nvcc that does not take this host's compiler is none
    set(ENV{CUDACXX} ${belfry_nvcc})
    list(GET CMAKE_CUDA_ARCHITECTURES 0 first)
    set(ENV{CUDAARCHS} ${first})
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      set(no_gpu_module "${belfry_nvcc} does not compile here")
    endif()
  endif()
endif()

if(no_gpu_module)
  message(STATUS "CUDA: no GPU module (${no_gpu_module})")
  set_property(SOURCE framework/device/gpus.cc APPEND PROPERTY COMPILE_DEFINITIONS
               "BELFRY_NO_GPU_MODULE=\"${no_gpu_module}\"")
  return()
endif()

# The header of NVTX needs no CUDA, so the library includes it itself.
if(BELFRY_NVTX_INCLUDE)
  set_source_files_properties(framework/base/profiler_range.cc PROPERTIES
    COMPILE_DEFINITIONS BELFRY_NVTX COMPILE_OPTIONS "-isystem;${BELFRY_NVTX_INCLUDE}")
else()
  message(STATUS "NVTX: nvtx3/nvToolsExt.h not found; profilers see no ranges of Belfry")
endif()

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${belfry_nvcc} CACHE FILEPATH "The compiler of CUDA" FORCE)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(CMAKE_VERSION VERSION_LESS 3.25.2)  # does not know C++20 for nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# As for C++: no build type sets NDEBUG. -O1 is of host code, which only launches; ptxas has -O3 anyway.
set(CMAKE_CUDA_FLAGS_RELEASE "-O1")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo -Xcompiler=-g1")

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS framework/cuda/*.cc framework/*.cu ops/*.cu)
add_library(belfry_cuda SHARED ${cuda_sources})
# No a * b + c is fused, as on hosts. nvcc splits what the host's compiler sees, which -Wpedantic
# takes for an extension.
set(host_warnings ${belfry_warnings})
list(REMOVE_ITEM host_warnings -Wpedantic)
if(CMAKE_COMPILE_WARNING_AS_ERROR)
  list(APPEND host_warnings -Werror)
endif()
list(JOIN host_warnings "," host_warnings)
target_compile_options(belfry_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:${belfry_warnings}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=${host_warnings}>")
target_include_directories(belfry_cuda PRIVATE ${CMAKE_BINARY_DIR}/generated)
list(JOIN CMAKE_CUDA_ARCHITECTURES "\;" architectures)
set_property(SOURCE framework/cuda/runtime/backend.cc APPEND PROPERTY COMPILE_DEFINITIONS
             "BELFRY_CUDA_ARCHITECTURES=\"${architectures}\"")
target_link_libraries(belfry_cuda PUBLIC belfry belfry_cuda_libraries)
add_dependencies(belfry_cuda belfry_identity)
set_target_properties(belfry_cuda PROPERTIES
  CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY None LINKER_LANGUAGE CXX
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN;${belfry_cuda_rpath}")
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: ${CMAKE_CUDA_COMPILER}, architectures "
               "${CMAKE_CUDA_ARCHITECTURES}; ${BELFRY_CUDNN_LIBRARY}")
