# Writes belfry/ops.h, a list of every op that a graph may hold: whoever adds one need not enter it.
# Left out are those that plans and strategies alone make, and what ops share.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} framework/core_ops/*.h
     ops/*.h ops/attention/*.h ops/convolution/*.h ops/indexing/*.h ops/linear_algebra/*.h
     ops/losses/*.h ops/normalization/*.h ops/pointwise/*.h ops/recurrent/*.h ops/shapes/*.h)
list(FILTER headers EXCLUDE REGEX 
     "_impl\\.h$|/(add_pieces|assign_gathered|batch_moments|batch_statistics|between_processes|bias_activation|combine_moments|composed_attention|copy|covering_nodes|cuts|fused_batch_norm|fused_layer_norm|fused_update|fusing|gather_moments|gather_shards|group_norm_on_host|made_by_plans|moments|normalise|pack_weights|padding|row_norm|spread|transfer|window)\\.h$")
list(TRANSFORM headers REPLACE "(.+)" "#include \"belfry/\\1\"  // IWYU pragma: export")
list(JOIN headers "\n" headers)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/include/belfry/ops.h @ONLY
     CONTENT "// Generated: every op of graphs.\n#pragma once\n${headers}\n")
