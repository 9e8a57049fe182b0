// Attention of joined tensors gives the bits of the separate nodes. In gpu_ops_tests this compares
// kernels of GPUs.
#include "belfry/ops/attention/joined_attention.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/split.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace joined_attention_test {

struct Form {
  AttentionOptions options;
  std::int64_t time, head_dim;
  bool masked = false, has_lengths = false;

  int kv_heads() const { return kv_heads_of(options); }
  std::int64_t width() const { return options.heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads() * head_dim; }
  std::string str() const {
    return cat(options.heads, "/", kv_heads(), " heads, time ", time, masked ? " masked" : "",
               has_lengths ? " with lengths" : "");
  }
};

// Blocks of queries and keys are full, partly full and several; heads have one column or many.
const Form kForms[] = {
    {{.heads = 2, .causal = true}, 5, 8},
    {{.heads = 3, .causal = true}, 67, 1},
    {{.heads = 4, .kv_heads = 2, .causal = true, .window = 3}, 33, 6},
    {{.heads = 2}, 130, 16, false, true},
    {{.heads = 2}, 9, 4, true, true},
};

constexpr std::int64_t kBatch = 2;

// Joined queries, keys and values; the gradient of y; a mask.
std::vector<Tensor> inputs_of(const Form& form, DType dtype) {
  std::vector<Tensor> inputs{
      random_values({kBatch, form.time, form.width() + 2 * form.kv_width()}, -1, 1, 1),
      random_values({kBatch, form.time, form.width()}, -1, 1, 2),
      random_values({form.time, form.time}, -1, 1, 3)};
  for (Tensor& input : inputs) input = to(input, dtype);
  return inputs;
}

AttentionInputs optional_inputs(const Form& form, Inputs in) {
  AttentionInputs inputs;
  if (form.masked) inputs.mask = in[2];
  if (form.has_lengths)
    inputs.lengths = constant(
        in[0].graph(),
        Tensor({kBatch}, std::vector<std::int32_t>{static_cast<std::int32_t>(form.time - 2), 1}));
  return inputs;
}

// y, logarithms of sums, the gradient of the joined tensor, and that of the mask.
std::vector<Output> joined(const Form& form, Inputs in) {
  Graph& graph = in[0].graph();
  const AttentionInputs more = optional_inputs(form, in);
  std::vector<Output> forward{in[0]};
  if (more.mask) forward.push_back(more.mask);
  if (more.lengths) forward.push_back(more.lengths);
  const Node& y = graph.add(kJoinedAttention, forward, {}, NodeOptions(form.options));
  std::vector<Output> backward{in[1], in[0], y.output(0), y.output(1)};
  backward.insert(backward.end(), forward.begin() + 1, forward.end());
  const Node& grad = graph.add(kJoinedAttentionGrad, backward, {}, NodeOptions(form.options));
  std::vector<Output> results{y.output(0), y.output(1), grad.output(0)};
  if (form.masked) results.push_back(grad.output(1));
  return results;
}

std::vector<Output> apart(const Form& form, Inputs in) {
  const std::vector<Output> qkv = split(in[0], {form.width(), form.kv_width(), form.kv_width()}, 2);
  const AttentionInputs more = optional_inputs(form, in);
  const Output y = attention(qkv[0], qkv[1], qkv[2], form.options, more);
  std::vector<Output> wanted{in[0]};
  if (form.masked) wanted.push_back(in[2]);
  std::vector<Output> results{y, y.node().output(1)};
  for (const Output& grad : gradients(y, wanted, {.initial = {in[1]}})) results.push_back(grad);
  return results;
}

TEST(JoinedAttention, HasTheBitsOfItsPartsOneByOne) {
  for (const Form& form : kForms)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      const std::vector<Tensor> in = inputs_of(form, dtype);
      for (std::size_t i = 0; i < (form.masked ? 4U : 3U); ++i) {
        const auto one = [&](const auto& build) {
          return compute([&](Inputs x) { return Built(build(form, x)[i]); }, in);
        };
        EXPECT_TRUE(one(joined) == one(apart))
            << form.str() << ", " << name_of(dtype) << ", result " << i;
      }
    }
}

TEST(JoinedAttention, MatchesItsReference) {
  for (const Form& form : kForms)
    check_op({.build = [&](Inputs x) { return Built(joined(form, x)); },
              .inputs = inputs_of(form, DType::kF32),
              .f32 = 4e-6,
              .gradient = -1,
              .nan = false,
              .unknown = false});
}

TEST(JoinedAttention, RefusesAWidthThatHeadsDoNotDivide) {
  expect_refused(
      [](Inputs x) {
        return x[0]
            .graph()
            .add(kJoinedAttention, {x[0]}, {}, NodeOptions(AttentionOptions{.heads = 2}))
            .output();
      },
      {{{1, 3, 10}, DType::kF32}}, "6 heads do not divide [1,3,10]");
}

}  // namespace joined_attention_test
}  // namespace belfry
