// Layers of attention (ops/attention/attention.h). See layers.h for what layers have in common.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/ops/attention/attention.h"
#include "belfry/towers/tower.h"

namespace belfry {

struct AttentionLayer {
  int heads = 0;        // required; they divide the width of x
  int kv_heads = 0;     // of keys and values; they divide `heads`. 0: as many as `heads`
  bool causal = false;  // each position sees itself and earlier ones
  int window = 0;       // with causal: at most this many positions, the last ones; 0: no limit
  bool bias = true;     // of all projections; biases start at zero
  bool rotary = false;  // queries and keys are rotated by their times (rotary_embedding.h)
  double base = 10000;  // of the rotations
  // Of weights, that is of what queries take of each key, when the tower trains. It takes the
  // matrix of all pairs, which attention() else avoids.
  double dropout = 0;
  Initializer init = {};  // of the projections of x; Glorot uniform by default
  Initializer out = {};   // of out/W; `init` by default
  bool trainable = true;
};

// x [N,time,width] -> y like x: a projection to queries, keys and values side by side, attention of
// the positions to each other (attention.h), by the mask and lengths in `inputs`, and a projection
// of the result. All but N must be known. Variables qkv/W [width,width + 2 kv_width], qkv/b, out/W
// [width,width] and out/b; kv_width is `kv_heads` times the width of a head.
Output multi_head_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                            AttentionInputs inputs = {}, At at = {});
// Cross-attention: keys and values are projections of `memory` [N,keys,memory_width]. Variables q/W
// [width,width], q/b, kv/W [memory_width,2 kv_width], kv/b, out/W and out/b.
Output multi_head_attention(Tower& tower, std::string_view name, Output x, Output memory,
                            AttentionLayer layer, AttentionInputs inputs = {}, At at = {});
// multi_head_attention() of x that is causal, with the same variables.
Output causal_self_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                             At at = {});

// Keys and values of the positions so far, for a model that generates. A run computes one position:
// it gets the tensors of earlier positions, and returns them with those of the new one.
struct KeyValueCache {
  Output keys, values;  // [N,time,kv_width]; zeros for positions that are not known yet
};
// A cache whose tensors are fed: placeholders `name`/keys and `name`/values, f32.
KeyValueCache key_value_cache(Tower& tower, std::string_view name, const Shape& shape, At at = {});

// One more token of a sequence.
struct TokenStep {
  Output token;                       // i32 or i64 [N,1]
  Output position;                    // [N]: of the token, from 0
  Output length;                      // [N]: position + 1
  std::int64_t time = 0;              // positions of caches
  std::vector<KeyValueCache> caches;  // of each layer of attention, made and updated by the model
};

// causal_self_attention() for one position x [N,1,width], with the same variables. `cache` becomes
// the cache with this position. It cannot have `window`.
Output causal_self_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                             const TokenStep& step, KeyValueCache& cache, At at = {});

}  // namespace belfry
