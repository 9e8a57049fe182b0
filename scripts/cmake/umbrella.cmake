# Writes belfry/ops.h, a list of every op that a graph may hold: whoever adds one need not enter it.
# Left out are those that plans and strategies alone make, and what ops share.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} framework/core_ops/*.h
     ops/*.h ops/attention/*.h ops/convolution/*.h ops/indexing/*.h ops/linear_algebra/*.h
     ops/losses/*.h ops/pointwise/*.h ops/recurrent/*.h ops/shapes/*.h)
list(FILTER headers EXCLUDE REGEX 
     "_impl\\.h$|/(add_pieces|assign_gathered|between_processes|bias_activation|copy|covering_nodes|cuts|fused_update|fusing|gather_shards|made_by_plans|pack_weights|padding|transfer|window)\\.h$")
list(TRANSFORM headers REPLACE "(.+)" "#include \"belfry/\\1\"  // IWYU pragma: export")
list(JOIN headers "\n" headers)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/include/belfry/ops.h @ONLY
     CONTENT "// Generated: every op of graphs.\n#pragma once\n${headers}\n")
