// Tests the program op_values, whose output scripts/compare_with_torch reads.
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace op_values_test {

TEST(OpValues, AreAnOpAndItsTwoDerivatives) {
  if (kSanitized) GTEST_SKIP() << "benchmarks are not built";
  const std::string folder = temporary_path(".values");
  const Finished done = run_built("op_values", {folder, "exp"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(local_file_system().list(folder), std::vector<std::string>{"exp.safetensors"});
  const std::string path = folder + "/exp.safetensors";
  const Safetensors file(local_file_system().read(path, 1 << 24), path);
  EXPECT_EQ(file.metadata().size(), 20u);
  const auto values = [&](const std::string& name) {
    const auto bytes = file.values(file.tensors().at(name));
    std::vector<double> numbers(bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  };
  for (const char* kernels : {"cpu", "reference"}) {
    const std::string given = "7/f64/", ours = cat(given, kernels, "/");
    const std::vector<double> x = values(given + "input0"), y = values(ours + "output0"),
                              dy = values(given + "gradient_direction0"),
                              gradient = values(ours + "gradient0"),
                              ddy = values(given + "second_direction0"),
                              second = values(ours + "second0");
    ASSERT_FALSE(x.empty());
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], std::exp(x[i]), 1e-13);
      EXPECT_NEAR(gradient[i], std::exp(x[i]) * dy[i], 1e-13);
      EXPECT_NEAR(second[i], std::exp(x[i]) * dy[i] * ddy[i], 1e-13);
    }
  }
  remove_tree(local_file_system(), folder);
}

// A second function of one name would silently replace the first, which a case needs.
TEST(OpValues, FunctionsOfPyTorchHaveDifferentNames) {
  const std::string text = text_of_file(BELFRY_SOURCE_DIR "/scripts/torch_ops.py");
  std::set<std::string_view> names;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with("def ")) continue;
    EXPECT_TRUE(names.insert(line.substr(4, line.find('(') - 4)).second) << line;
  }
  EXPECT_TRUE(names.contains("conv2d"));
}

}  // namespace op_values_test
}  // namespace belfry
