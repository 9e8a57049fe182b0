# belfry_batches(TARGET COUNT): with BELFRY_BATCHES the sources of the target are compiled as COUNT, in
# two thirds of the time: templates are instantiated once for all of a batch. Batches are drawn by
# name, so that a new source moves no other.
function(belfry_batches target count)
  if(NOT BELFRY_BATCHES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    string(MD5 number ${name})
    string(SUBSTRING ${number} 0 6 number)
    math(EXPR number "0x${number} % ${count}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${number})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
