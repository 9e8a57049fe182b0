// RotaryEmbedding: positions as rotations of pairs of columns (Su et al. 2021).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct RotaryEmbeddingOptions {
  int heads = 1;         // at least 1; they divide the width
  double base = 10000;   // positive
  bool inverse = false;  // by the negative angles: the gradient
};

// x [batch, time, heads * head_dim] with an even head_dim -> like x. In each head, columns i and i
// + head_dim / 2 are a pair, as in GPT-NeoX and Llama (GPT-J pairs neighbours). At time t, from 0,
// it is rotated by t * base^(-2 i / head_dim) radians. f16, bf16, f32 and f64; accurate for times
// up to 1e6.
extern const Op kRotaryEmbedding;
// Throws InvalidArgument if heads do not divide the width, or head_dim is odd.
Output rotary_embedding(Output x, RotaryEmbeddingOptions options = {}, At at = {});

}  // namespace belfry
