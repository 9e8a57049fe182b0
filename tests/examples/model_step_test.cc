// Tests the program model_step, whose output scripts/compare_with_torch reads.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace model_step_test {

std::vector<float> floats_of(const Safetensors& file, const std::string& name) {
  const auto bytes = file.values(file.tensors().at(name));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(ModelStep, WritesWeightsBatchLossAndGradients) {
  if (kSanitized) GTEST_SKIP() << "benchmarks are not built";
  const std::string path = temporary_path(".safetensors");
  const Finished done = run_built("model_step", {"--model=mlp", "--batch_size=3", path});
  ASSERT_EQ(done.status, 0) << done.errors;
  const Safetensors file(local_file_system().read(path, 1 << 24), path);
  EXPECT_EQ(file.tensors().size(), 2u + 1 + 2 * 6);
  EXPECT_EQ(file.tensors().at("input/image").shape, (Shape{3, 28, 28, 1}));
  EXPECT_EQ(file.tensors().at("weight/fc2/W").shape, (Shape{512, 10}));
  const float loss = floats_of(file, "loss")[0];
  EXPECT_GT(loss, 0.5);
  EXPECT_LT(loss, 10);
  // The gradient is softmax less the label, and probabilities add up to one.
  const std::vector<float> bias = floats_of(file, "gradient/fc2/b");
  EXPECT_NEAR(std::accumulate(bias.begin(), bias.end(), 0.0), 0, 1e-6);
  EXPECT_GT(*std::max_element(bias.begin(), bias.end()), 0);
}

}  // namespace model_step_test
}  // namespace belfry
