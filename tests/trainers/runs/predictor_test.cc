#include "belfry/trainers/runs/predictor.h"

#include <cmath>
#include <numeric>

#include "belfry/framework/base/error.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace predictor_test {

using testing::HasSubstr;

Output model(Tower& tower, Output x, Output y) {
  const Output answer = dense(tower, "fc", batch_norm(tower, "bn", x), {.units = 1});
  tower.output("answer", answer);
  return reduce_mean(square(answer - y));
}

class PredictorTest : public TrainTest {
 protected:
  PredictorTest() {
    Recipe recipe = small_recipe();
    recipe.model = model;
    std::filesystem::remove_all(run_);
    EXPECT_EQ(run_train({"--devices=cpu:2", "--run_dir=" + run_}, recipe).code, 0);
  }
  ~PredictorTest() override { std::filesystem::remove_all(run_); }

  const std::vector<PredictorInput> inputs_{{"x", {kUnknownSize, 4}, DType::kF64},
                                            {"y", {kUnknownSize, 1}, DType::kF64}};
  const std::string run_ = path(".run");
};

TEST_F(PredictorTest, AnswersWithTheWeightsOfARunWithoutItsOptimizer) {
  Predictor predict(run_, model, inputs_);
  const auto data = smooth_data(5);
  const std::int64_t rows[] = {0, 1, 2, 3, 4};
  const std::vector<Tensor> fields = gather_tensors(*data, rows);
  const Tensor all = predict("answer", {{"x", fields[0]}});
  EXPECT_EQ(all.shape(), Shape({5, 1}));
  // Samples do not depend on each other, as batch norm uses its averages.
  for (const std::int64_t row : rows) {
    const std::int64_t one[] = {row};
    const Tensor x = gather_tensors(*data, one)[0];
    EXPECT_EQ(predict("answer", {{"x", x}}).data<double>()[0],
              all.data<double>()[static_cast<std::size_t>(row)]);
  }
  Predictor latest(run_ + "/checkpoints/latest", model, inputs_);
  EXPECT_EQ(latest("answer", {{"x", fields[0]}}).data<double>()[4], all.data<double>()[4]);
}

// What --moving_average evaluates is what it answers with.
TEST_F(PredictorTest, AnswersWithTheWeightsThatWereValidated) {
  Recipe recipe = small_recipe();
  recipe.model = model;
  std::filesystem::remove_all(run_);
  ASSERT_EQ(run_train({"--devices=cpu:1", "--epochs=1", "--moving_average=0.99",
                       "--run_dir=" + run_, "--json=" + json_.string()},
                      recipe)
                .code,
            0);
  const double validated = report()["validation_loss"].get<double>();
  const auto data = small_data(false);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(data->size()));
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<Tensor> fields = gather_tensors(*data, rows);
  const auto loss_by = [&](const PredictorOptions& options) {
    Predictor predict(run_, model, inputs_, options);
    const Tensor answers = predict("answer", {{"x", fields[0]}});
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double error = answers.data<double>()[i] - fields[1].data<double>()[i];
      sum += error * error;
    }
    return sum / static_cast<double>(rows.size());
  };
  EXPECT_NEAR(loss_by({}), validated, 1e-9 * validated);
  EXPECT_NEAR(loss_by({.weights = WeightChoice::kAverage}), validated, 1e-9 * validated);
  EXPECT_GT(std::abs(loss_by({.weights = WeightChoice::kRaw}) - validated), 1e-3 * validated);
}

TEST_F(PredictorTest, NamesWhatTheModelLacks) {
  Predictor predict(run_, model, inputs_);
  const auto message = [&](const std::string& output, const std::string& input) {
    try {
      predict(output, {{input, Tensor({1, 4}, DType::kF64)}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("answr", "x"), HasSubstr("answer"));
  EXPECT_THAT(message("answer", "xx"), HasSubstr("the model has no input 'xx'"));
  EXPECT_THROW(Predictor(run_ + "/none", model, inputs_), NotFoundError);
}

}  // namespace predictor_test
}  // namespace belfry
