# NodeOptions of the compiler and linker, the sanitizers, and ccache and mold where present.
include(CheckLinkerFlag)

find_program(BELFRY_CCACHE ccache DOC "Compiler cache, or nothing")
if(BELFRY_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these it takes no precompiled header and nothing that was compiled with one.
  set(sloppiness pch_defines,time_macros,include_file_mtime,include_file_ctime)
  # It must compare the headers themselves, not what the preprocessor makes of them: g++ recognises
  # a header of a precompiled one by its text, comments included, and else includes it twice. In a
  # namespace of its own, as entries made without that answer by the headers, too, and are wrong.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=${sloppiness}
                                  CCACHE_DEPEND=1 CCACHE_NAMESPACE=belfry ${BELFRY_CCACHE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(belfry_precompiled_options -fpch-preprocess)  # with precompiled headers; ccache asks for it
endif()
if(BELFRY_BATCHES AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ collects garbage from 128 MiB on, which takes an eighth of its time. It does so later where
  # the machine has the 2 GB per core that batches then take.
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR memory "${memory} / ${cores}")
  if(memory GREATER 3000)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)  # KiB
  endif()
endif()
check_linker_flag(CXX -fuse-ld=mold BELFRY_MOLD)
if(BELFRY_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# No contraction of a * b + c: results must not depend on what the compiler fuses. No build type
# sets NDEBUG: checks stay on.
set(belfry_public_options $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
                          $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>)
set(belfry_warnings -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # It misfires on any `text + string` (bug 105651 of g++ 12).
  list(APPEND belfry_warnings -Wno-restrict)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # It misfires where a function that takes a temporary returns a reference to something else.
    list(APPEND belfry_warnings -Wno-dangling-reference)
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

if(NOT BELFRY_SANITIZE STREQUAL none)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1 -fno-omit-frame-pointer")  # -O1 takes a quarter longer
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Instrumented code looks uninitialised to it where it is not.
    list(APPEND belfry_warnings -Wno-maybe-uninitialized)
  endif()
endif()
if(BELFRY_SANITIZE STREQUAL address)
  # AddressSanitizer reports null pointers itself, and these checks of each access take a sixth of
  # the time to compile.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-sanitize=null,alignment,vptr)
  add_link_options(-fsanitize=address,undefined)
elseif(BELFRY_SANITIZE STREQUAL thread)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
  # ifunc resolvers run before the TSan runtime is set up and crash it.
  add_compile_definitions(BELFRY_NO_TARGET_CLONES)
elseif(NOT BELFRY_SANITIZE STREQUAL none)
  message(FATAL_ERROR "BELFRY_SANITIZE is none, address or thread, not ${BELFRY_SANITIZE}")
endif()
