# cmake -D INCLUDE=DIR -D PREFIX=DIR -D "SOURCES=DIR;FILE;..." -D "HEADERS=belfry.h;..."
#       -P install_headers.cmake
# Installs HEADERS of INCLUDE/belfry, those that SOURCES (files, or all in a folder) include, and all that
# these include of it, as PREFIX/include/belfry/... Nobody keeps a list of these: what is no longer included
# is no longer installed.
cmake_minimum_required(VERSION 3.25)

# belfry_includes(NAME FILE): the headers of ours that a file includes, without "belfry/".
function(belfry_includes name file)
  file(STRINGS ${file} lines REGEX "^ *# *include +[\"<]belfry/")
  list(TRANSFORM lines REPLACE "^[^\"<]+[\"<]belfry/([^\">]+).*" "\\1")
  set(${name} ${lines} PARENT_SCOPE)
endfunction()

set(todo ${HEADERS})
set(files "")
foreach(source ${SOURCES})
  file(GLOB_RECURSE found ${source}/*.cc ${source}/*.cu ${source}/*.h)
  if(NOT IS_DIRECTORY ${source})
    set(found ${source})
  endif()
  list(APPEND files ${found})
endforeach()
foreach(source ${files})
  belfry_includes(headers ${source})
  list(APPEND todo ${headers})
endforeach()
list(REMOVE_DUPLICATES todo)
set(seen ${todo})
while(todo)
  list(POP_FRONT todo header)
  file(REAL_PATH ${INCLUDE}/belfry/${header} source)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL ${source} DESTINATION ${PREFIX}/include/belfry/${folder})
  belfry_includes(includes ${source})
  foreach(include ${includes})
    if(NOT include IN_LIST seen)
      list(APPEND todo ${include})
      list(APPEND seen ${include})
    endif()
  endforeach()
endwhile()
