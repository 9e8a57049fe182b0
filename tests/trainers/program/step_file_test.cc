// --write_step: one step of a model as a file.
#include <cstring>
#include <map>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/ops/losses/regression.h"
#include "belfry/tests/trainers/program/train_support.h"

namespace belfry {
namespace step_file_test {

using testing::HasSubstr;

Output noisy_line(Tower& tower, Output x, Output y) {
  const Output noisy = dropout(tower, x + random_normal(tower, x, {4}, 1, DType::kF64), 0.25);
  return mse_loss(dense(tower, "fc", noisy, {.units = 1}), y);
}

Recipe noisy_recipe() {
  Recipe recipe = small_recipe();
  recipe.model = noisy_line;
  return recipe;
}

class StepFile : public TrainTest {
 protected:
  ~StepFile() override {
    std::filesystem::remove(path("step"));
    std::filesystem::remove_all(path("run"));
  }

  Safetensors written() const {
    return Safetensors(local_file_system().read(path("step")), path("step"));
  }
  std::string flag() const { return "--write_step=" + path("step"); }
};

template <class T = double>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const auto bytes = file.values(file.tensors().at(name));
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

TEST_F(StepFile, HasAllThatLossAndGradientsComeFrom) {
  const TrainResult done = run_train({flag()}, noisy_recipe());
  ASSERT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr(cat("wrote a step to ", path("step"))));
  const Safetensors file = written();
  EXPECT_EQ(file.metadata().at("order"),
            "input/x\ninput/y\nvariable/fc/W\nvariable/fc/b\nrandom/RandomNormal\nrandom/Dropout\n"
            "loss\ngradient/fc/W\ngradient/fc/b");
  const auto x = values(file, "input/x"), y = values(file, "input/y");
  const auto noise = values(file, "random/RandomNormal");
  const auto mask = values<std::uint8_t>(file, "random/Dropout");
  const auto w = values(file, "variable/fc/W"), b = values(file, "variable/fc/b");
  ASSERT_EQ(y.size(), 16u) << "of both devices";
  double loss = 0, slope = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    double error = b[0] - y[i];
    for (std::size_t c = 0; c < 4; ++c)
      error += w[c] * (x[4 * i + c] + noise[4 * i + c]) * mask[4 * i + c] / 0.75;
    loss += error * error / 16;
    slope += 2 * error / 16;
  }
  EXPECT_NEAR(values(file, "loss")[0], loss, 1e-5);
  EXPECT_NEAR(values(file, "gradient/fc/b")[0], slope, 1e-5);
}

TEST_F(StepFile, HasSeveralLosses) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) -> Output {
    const Output a = dense(tower, "a", x, {.units = 1}), b = dense(tower, "b", x, {.units = 1});
    tower.loss("right", mse_loss(b, y));
    tower.loss("near", mse_loss(a, b));
    return {};
  };
  recipe.losses = {{.loss = "near", .variables = {"a"}, .optimizer = sgd(0.1)},
                   {.loss = "right", .variables = {"b"}, .optimizer = sgd(0.1)}};
  recipe.optimizer = {};
  const TrainResult done = run_train({flag()}, recipe);
  ASSERT_EQ(done.code, 0) << done.error;
  const Safetensors file = written();
  EXPECT_EQ(file.metadata().at("variables/near"), "a/W\na/b");
  EXPECT_EQ(file.metadata().at("variables/right"), "b/W\nb/b");
  EXPECT_EQ(file.tensors().count("loss"), 0u);
  // Of `near` both have a gradient, of which only that of its own variable is there.
  const auto x = values(file, "input/x"), y = values(file, "input/y");
  const auto w = values(file, "variable/b/W"), b = values(file, "variable/b/b");
  double slope = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    double error = b[0] - y[i];
    for (std::size_t c = 0; c < w.size(); ++c) error += w[c] * x[w.size() * i + c];
    slope += 2 * error / static_cast<double>(y.size());
  }
  EXPECT_NEAR(values(file, "gradient/b/b")[0], slope, 1e-5);
  EXPECT_GT(values(file, "loss/right")[0], 0);
}

TEST_F(StepFile, HasTheWeightsThatAreLoaded) {
  const std::string run = path("run");
  ASSERT_EQ(run_train({"--run_dir=" + run, "--max_steps=3"}).code, 0);
  ASSERT_EQ(run_train({flag()}).code, 0);
  const auto first = values(written(), "variable/fc0/W");
  const TrainResult done = run_train({flag(), "--load=" + run});
  ASSERT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("loaded 4 weights"));
  EXPECT_NE(values(written(), "variable/fc0/W"), first);
}

TEST_F(StepFile, RefusesFlagsOfATraining) {
  for (const char* const other : {"--run_dir=r", "--trace_file=t", "--resume=r", "--json=j"})
    EXPECT_THAT(run_train({flag(), other}).error, HasSubstr(" has no use beside --write_step"))
        << other;
  for (const char* const other : {"--dry_run", "--summary", "--check_equivalence=1"})
    EXPECT_THAT(run_train({flag(), other}).error, HasSubstr(cat(flag(), " has no use beside ")))
        << other;
  EXPECT_THAT(run_train({flag(), "--evaluate_only", "--load=r"}).error,
              HasSubstr("--evaluate_only computes no gradients that --write_step"));
  EXPECT_THAT(run_train({flag(), "--global_batch_size=72"}).error,
              HasSubstr("a step takes 72 samples, and the training data have 70"));
}

}  // namespace step_file_test
}  // namespace belfry
