#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/group_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace composed_norm_test {

struct Norm {
  const char* name;
  Builder build;  // of x, gamma, and what else it takes
  std::size_t inputs;
};

const Norm kNorms[] = {
    {"layer_norm", [](Inputs x) { return layer_norm(x[0], x[1], x[2]); }, 3},
    {"rms_norm", [](Inputs x) { return rms_norm(x[0], x[1]); }, 2},
    {"group_norm", [](Inputs x) { return group_norm(x[0], x[1], x[2], {.groups = 2}); }, 3},
    {"batch_norm", [](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; }, 3},
    {"inference", [](Inputs x) { return batch_norm_inference(x[0], x[1], x[2], x[3], x[4]); }, 5}};

// The gradients along the last input, which has the shape of x.
TEST(ComposedNorms, AreTheGradientsOfGradients) {
  for (const Norm& norm : kNorms) {
    SCOPED_TRACE(norm.name);
    std::vector<Tensor> inputs{random_values({5, 3, 4}, -2, 2, 1), random_values({4}, 0.5, 2, 2),
                               random_values({4}, -1, 1, 3), random_values({4}, -1, 1, 4),
                               random_values({4}, 0.5, 2, 5)};
    inputs.resize(norm.inputs);
    inputs.push_back(random_values({5, 3, 4}, -1, 1, 6));
    check_op({.build =
                  [&](Inputs x) {
                    const std::vector<Output> wanted(x.begin(), x.end() - 1);
                    const Output y = norm.build(x)[0];
                    return Built(gradients(y, wanted, {.initial = {x.back()}}));
                  },
              .inputs = inputs,
              .f32 = 5e-6,
              .f64 = 1e-12,
              .gradient = 1e-6,
              .library = true,
              .nan = false});
  }
}

}  // namespace composed_norm_test
}  // namespace belfry
