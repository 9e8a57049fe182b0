#include "belfry/trainers/runs/predictor.h"

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
