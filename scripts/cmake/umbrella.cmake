# Writes belfry/belfry.h (the whole public face) and belfry/ops.h (every op): lists of the headers
# that exist, so that nobody keeps them by hand. Headers named *_impl.h and kernel internals in
# ops/kernels stay out.
function(belfry_umbrella name)
  list(JOIN ARGN ", " folders)
  set(content "// Generated: every public header of ${folders}.\n#pragma once\n")
  foreach(pattern ${ARGN})
    file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${pattern}/*.h)
    list(FILTER headers EXCLUDE REGEX "_impl\\.h$")
    foreach(header ${headers})
      string(APPEND content "#include \"belfry/${header}\"  // IWYU pragma: export\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/include/belfry/${name} CONTENT "${content}" @ONLY)
endfunction()

belfry_umbrella(ops.h framework/core_ops ops ops/updates ops/normalization)
belfry_umbrella(belfry.h framework/base framework/graph framework/gradients framework/core_ops
                framework/device framework/plan framework/run framework/trace framework/checkpoint
                ops ops/updates ops/normalization towers allreduce/verify allreduce trainers/util
                trainers/data trainers/machine trainers/core trainers/bench trainers/program)
