// The ops of ops/attention.
#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

Tensor random_mask(Random& random, const Shape& shape) {
  Tensor mask(shape, DType::kBool);
  for (bool& seen : mask.mutable_data<bool>()) seen = random.integer(0, 2) > 0;
  return mask;
}

// Times are below or above the blocks of kernels.
OpUse attention_use(Random& random, bool causal) {
  const int batch = random.integer(1, 3), kv_heads = random.integer(1, 2),
            group = random.integer(1, 2), head_dim = random.integer(1, 9), heads = kv_heads * group;
  const int queries = random.integer(1, random.coin() ? 6 : 140),
            keys = causal ? queries : random.integer(1, random.coin() ? 6 : 140);
  const int window = causal && random.coin() ? random.integer(1, 80) : 0;
  const int masked = random.integer(0, 4), given = random.coin() ? 1 : 0;
  const std::int64_t of_batch = random.coin() ? batch : 1, of_heads = random.coin() ? heads : 1;
  const Shape mask =
      masked == 1 || masked == 3 ? Shape{queries, keys} : Shape{of_batch, of_heads, queries, keys};
  OpUse use{.inputs = {random.values({batch, queries, heads * head_dim}),
                       random.values({batch, keys, kv_heads * head_dim}),
                       random.values({batch, keys, kv_heads * head_dim})},
            .options = JsonValue::object()
                           .set("heads", heads)
                           .set("kv_heads", kv_heads)
                           .set("causal", causal)
                           .set("window", window)
                           .set("masked", masked > 0)
                           .set("lengths", given > 0)};
  if (masked > 0)
    use.inputs.push_back(masked < 3 ? random_mask(random, mask) : random.values(mask));
  if (given > 0) use.inputs.push_back(random.integers({batch}, 0, keys));
  use.build = [=](Inputs x) {
    AttentionInputs inputs;
    if (masked > 0) inputs.mask = x[3];
    if (given > 0) inputs.lengths = x[masked > 0 ? 4 : 3];
    return attention(x[0], x[1], x[2],
                     {.heads = heads, .kv_heads = kv_heads, .causal = causal, .window = window},
                     inputs);
  };
  return use;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  return {{"attention", [](Random& random) { return attention_use(random, false); }},
          {"causal_attention", [](Random& random) { return attention_use(random, true); }}};
}

}  // namespace belfry::bench
