// Faults of numerics, one for each kind of op, and trainings with them.
#pragma once
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/log.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer_options.h"

namespace belfry::faults {

inline constexpr std::int64_t kSamples = 16, kBad = 5;
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// 16 samples "x" f32 [4], from 0.5 to 1.1, and "y" i32, all 1. Sample 5 of bad data has only
// `bad`.
inline std::unique_ptr<Dataset> data(bool good, float bad = 0) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (int j = 0; j < 4; ++j)
      x.push_back(i == kBad && !good ? bad : 0.5F + 0.01F * static_cast<float>(4 * i + j));
  const std::vector<std::int32_t> y(kSamples, 1);
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({kSamples, 4}, x), DType::kF32, {4}},
                                         {"y", Tensor({kSamples}, y), DType::kI32, {}}},
      "numbers");
}

// What a fault is made of: x, whose row is 0 for the bad sample; `m`, whose elements are 1 for
// the bad sample, and otherwise 0; and the labels. The gradients of x and m reach a variable.
struct Parts {
  Tower& tower;
  Output x, m, labels;
};

struct Fault {
  const char* name;
  const char* kind;  // of the op
  const char* of;    // of the forward op, for a gradient
  unsigned line;     // before those of the op
  Output (*make)(const Parts& parts);
  enum Rows { kRow, kFirstRow } rows = kRow;
  double factor = 1;  // of the loss
  Precision precision = Precision::kF32;
};

inline std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

inline Output loss_of(const Fault& fault, Tower& tower, Output x, Output labels) {
  const Variable w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()});
  const Output moved = x * w;
  const Output made = fault.make({tower, moved, 2.0 * relu(0.5 - moved), labels});
  return reduce_mean(cast(made, DType::kF32)) * fault.factor;
}

inline Output ones(const Parts& parts, Shape shape) {
  return variable(parts.tower.graph(), "ones", shape,
                  {.initializer = init::ones(), .trainable = false})
      .read();
}

inline Output image(Output x) { return reshape(x, {kUnknownSize, 2, 2, 1}); }

inline const Fault kFaults[] = {
    {"Log", "Log", "", __LINE__, [](const Parts& p) { return log(p.x); }},
    {"LogGradient", "", "Log", __LINE__, [](const Parts& p) { return log(square(p.x) + 2e-38); },
     Fault::kRow, 1e6},
    {"Sqrt", "Sqrt", "", __LINE__, [](const Parts& p) { return sqrt(p.x - 0.25); }},
    {"SqrtGradient", "", "Sqrt", __LINE__, [](const Parts& p) { return sqrt(p.x); }},
    {"Div", "Div", "", __LINE__, [](const Parts& p) { return 1.0 / p.x; }},
    {"DivGradient", "", "Div", __LINE__, [](const Parts& p) { return p.x / (square(p.x) + 2e-38); },
     Fault::kRow, 1e6},
    {"Exp", "Exp", "", __LINE__, [](const Parts& p) { return exp(p.m * 100.0); }},
    {"Square", "Square", "", __LINE__, [](const Parts& p) { return square(p.m * 1e30); }},
    {"Mul", "Mul", "", __LINE__, [](const Parts& p) { return p.m * 1e30 * (p.m * 1e30); }},
    {"Add", "Add", "", __LINE__, [](const Parts& p) { return p.m * 3e38 + p.m * 3e38; }},
    {"Sub", "Sub", "", __LINE__, [](const Parts& p) { return p.m * 3e38 - p.m * -3e38; }},
    {"AddN", "AddN", "", __LINE__,
     [](const Parts& p) {
       return add_n({{p.m * 3e38, p.m * 3e38, p.m}});
     }},
    {"MatMul", "MatMul", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 3e38, ones(p, {4, 2}));
     }},
    {"Conv2d", "Conv2d", "", __LINE__,
     [](const Parts& p) {
       return conv2d(image(p.m * 3e38), ones(p, {2, 2, 1, 1}));
     }},
    {"AvgPool", "AvgPool", "", __LINE__,
     [](const Parts& p) { return avg_pool(image(p.m * 3e38), {.window = 2, .stride = 2}); }},
    {"ReduceSum", "ReduceSum", "", __LINE__,
     [](const Parts& p) { return reduce_sum(p.m * 3e38, {1}); }},
    {"SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy", "", __LINE__,
     [](const Parts& p) {
       const std::vector<float> signs{1, -1, 0, 0};
       return sparse_softmax_cross_entropy(
           p.m * 3e38 * constant(p.tower.graph(), Tensor({4}, signs)), p.labels);
     }},
    {"SigmoidCrossEntropy", "SigmoidCrossEntropy", "", __LINE__,
     [](const Parts& p) { return sigmoid_cross_entropy(p.m * 3e38, p.m * -20.0); }},
    {"LayerNorm", "LayerNorm", "", __LINE__,
     [](const Parts& p) { return layer_norm(p.tower, "norm", p.x, {.epsilon = 0}); }},
    {"BatchNorm", "BatchNorm", "", __LINE__,
     [](const Parts& p) {
       // 0 for the whole tower of the bad sample, whose variance then is 0.
       const Output zero = relu(1.0 - reduce_sum(p.m) * 100.0);
       const Output gamma = ones(p, {4});
       return batch_norm_train(p.x * zero, gamma, gamma, {.epsilon = 0}).y;
     },
     Fault::kFirstRow},
    {"Attention", "Attention", "", __LINE__,
     [](const Parts& p) {
       const Output q = reshape(p.m * 1e30, {kUnknownSize, 2, 2});
       return causal_attention(q, q, q);
     }},
    {"Dropout", "Dropout", "", __LINE__, [](const Parts& p) { return dropout(p.m * 3e38, 0.5); }},
    {"Cast", "Cast", "", __LINE__, [](const Parts& p) { return cast(p.m * 1e5, DType::kF16); }},
    {"CastOfF16", "Cast", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 1e5, ones(p, {4, 2}));
     },
     Fault::kRow, 1, Precision::kF16},
    {"MatMulOfF16", "MatMul", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 5e4, ones(p, {4, 2}));
     },
     Fault::kRow, 1, Precision::kF16},
};

inline TrainerOptions options_for(const Fault& fault, int devices) {
  return {
      .model = [&fault](Tower& tower, Output x, Output y) { return loss_of(fault, tower, x, y); },
      .optimizer = sgd(1e-6),
      .devices = cpus(devices),
      .batch_size = static_cast<int>(kSamples) / devices,
      .precision = fault.precision,
      .warn_of_loss = false};
}

}  // namespace belfry::faults
