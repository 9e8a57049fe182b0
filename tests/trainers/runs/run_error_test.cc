// The error in summary.json of runs that fail.
#include "belfry/trainers/runs/run_error.h"

#include <cmath>
#include <fstream>

#include "belfry/framework/base/text.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/tests/trainers/runs/run_files.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace run_error_test {

using testing::HasSubstr;

// Calls a function before the second step.
struct BeforeSecondStep final : Callback {
  explicit BeforeSecondStep(std::function<void(Trainer&)> f) : act(std::move(f)) {}
  void before_step(Trainer& trainer, const StepInfo& info) override {
    if (info.step == 1) act(trainer);
  }
  std::function<void(Trainer&)> act;
};

class RunErrorTest : public TrainTest {
 protected:
  RunErrorTest() { std::filesystem::remove_all(run_); }
  ~RunErrorTest() override { std::filesystem::remove_all(run_); }

  // The error of a run that fails, with all its members.
  nlohmann::json error_of(std::vector<std::string> flags, const Recipe& recipe,
                          const std::string& devices = "cpu:1") {
    flags.insert(flags.end(), {"--devices=" + devices, "--run_dir=" + run_});
    const TrainResult done = run_train(std::move(flags), recipe);
    EXPECT_EQ(done.code, 1) << done.error;
    const nlohmann::json summary = test::summary_of(run_);
    EXPECT_EQ(summary["finished"], false);
    EXPECT_EQ(summary["exit_code"], 1);
    nlohmann::json error = summary["error"];
    EXPECT_EQ(error.size(), 13u) << error;
    EXPECT_THAT(done.error, HasSubstr(error["what"].get<std::string>()));
    return error;
  }

  const std::string run_ = path(".run");
};

// Samples of three classes. The last of 32 has a fourth label.
std::unique_ptr<Dataset> mislabelled_data(bool train) {
  if (!train) return nullptr;
  std::vector<float> x;
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 32; ++i) {
    x.push_back(static_cast<float>(i));
    labels.push_back(i == 31 ? 3 : i % 3);
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({32, 1}, x), DType::kF32, {1}},
                                         {"label", Tensor({32}, labels), DType::kI32, {}}},
      "a label too many");
}

Output classes(Tower& tower, Output x, Output label) {
  return cross_entropy(dense(tower, "fc", x, {.units = 3}), label);
}

TEST_F(RunErrorTest, NamesOpDeviceAndStepOfAKernelThatFails) {
  const nlohmann::json error = error_of(
      {"--save_every_steps=1"},
      {.model = classes, .data = mislabelled_data, .optimizer = sgd(0.01), .batch_size = 8});
  EXPECT_EQ(error["code"], "OP");
  EXPECT_THAT(error["op"].get<std::string>(), HasSubstr("SparseSoftmaxCrossEntropy"));
  EXPECT_EQ(error["device"], "/job:localhost/replica:0/task:0/device:CPU:0");
  const int step = error["step"];
  EXPECT_THAT(step, testing::AllOf(testing::Ge(1), testing::Le(4)));
  EXPECT_THAT(error["what"].get<std::string>(), HasSubstr("label"));
  EXPECT_TRUE(error["variable"].is_null());
  if (step > 1) {
    EXPECT_THAT(error["kept"].get<std::string>(), HasSubstr(cat("step ", step - 1, " is saved")));
    EXPECT_THAT(error["what"].get<std::string>(), HasSubstr(error["cause"].get<std::string>()));
  }
  EXPECT_THAT(error["do"].get<std::string>(), HasSubstr("data"));
}

// The other towers, and the save that is due, see values that a failed step has left half written.
TEST_F(RunErrorTest, NamesTheOpThatFailedFirstIfTowersRunFree) {
  const nlohmann::json error = error_of(
      {"--trainer=async", "--async=free", "--save_every_steps=1"},
      {.model = classes, .data = mislabelled_data, .optimizer = sgd(0.01), .batch_size = 2},
      "cpu:4");
  EXPECT_EQ(error["code"], "OP");
  EXPECT_THAT(error["op"].get<std::string>(), HasSubstr("SparseSoftmaxCrossEntropy"));
  EXPECT_THAT(error["what"].get<std::string>(), HasSubstr("label"));
}

TEST_F(RunErrorTest, NamesOpAndDeviceOfAKernelThatFailsOnAGpu) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const nlohmann::json error = error_of(
      {}, {.model = classes, .data = mislabelled_data, .optimizer = sgd(0.01), .batch_size = 8},
      "gpu:2");
  EXPECT_EQ(error["code"], "OP");
  EXPECT_THAT(error["op"].get<std::string>(), HasSubstr("SparseSoftmaxCrossEntropy"));
  EXPECT_THAT(error["device"].get<std::string>(),
              testing::MatchesRegex("/job:localhost/replica:0/task:0/device:GPU:[01]"));
  EXPECT_THAT(error["what"].get<std::string>(), HasSubstr("label"));
}

TEST_F(RunErrorTest, NamesStepAndVariablesOfARunThatDiverges) {
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<BeforeSecondStep>([](Trainer& trainer) {
    const Variable w = trainer.built().nodes().towers[0].trainables[0];
    Tensor value = trainer.session().read(w);
    value.mutable_data<double>()[0] = std::nan("");
    trainer.session().write(w, value);
  })};
  const nlohmann::json error = error_of({"--max_steps=4"}, recipe);
  EXPECT_EQ(error["code"], "DIVERGED");
  EXPECT_EQ(error["step"], 2);
  EXPECT_THAT(error["variable"].get<std::string>(), HasSubstr("'fc0/W' f64[4,5] (built at "));
  EXPECT_THAT(error["op"].get<std::string>(), HasSubstr("MatMul"));
  EXPECT_THAT(error["where"].get<std::string>(), HasSubstr("(built at small_problem.h:"));
  EXPECT_THAT(error["device"].get<std::string>(), HasSubstr("CPU"));
  EXPECT_THAT(error["do"].get<std::string>(), HasSubstr("look at the first value of 'fc0/W'"));
}

TEST_F(RunErrorTest, NamesTheFileThatCannotBeWritten) {
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<BeforeSecondStep>([this](Trainer&) {
    std::filesystem::remove_all(run_ + "/checkpoints");
    std::ofstream(run_ + "/checkpoints") << "no folder";
  })};
  const nlohmann::json error =
      error_of({"--max_steps=4", "--save_every_steps=2", "--on_save_error=stop"}, recipe);
  EXPECT_EQ(error["code"], "IO");
  EXPECT_THAT(error["what"].get<std::string>(), HasSubstr(run_ + "/checkpoints"));
  EXPECT_TRUE(error["kept"].is_null());
  EXPECT_TRUE(error["op"].is_null());
  std::filesystem::remove(run_ + "/checkpoints");
}

TEST_F(RunErrorTest, AFlagThatDoesNotFitTheModelBeginsNoRun) {
  const TrainResult refused = run_train({"--early_stop=nothing:min:1", "--run_dir=" + run_});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("--early_stop=nothing:min:1: there is no metric"));
  EXPECT_FALSE(std::filesystem::exists(run_ + "/summary.json"));
}

TEST_F(RunErrorTest, AMistakeOnTheCommandLineLeavesTheRunAlone) {
  ASSERT_EQ(run_train({"--devices=cpu:1", "--max_steps=2", "--run_dir=" + run_}).code, 0);
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_step=2", "--run_dir=" + run_}).code, 2);
  EXPECT_EQ(test::summary_of(run_)["finished"], true);
}

TEST(ErrorJson, TellsErrorsApart) {
  const auto data = smooth_data(8);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4}, *data);
  const auto code_of = [&](const std::exception& error) {
    return error_json(error, trainer, "").at("code").text();
  };
  EXPECT_EQ(code_of(OutOfMemory("")), "OUT_OF_MEMORY");
  EXPECT_EQ(code_of(std::bad_alloc()), "OUT_OF_MEMORY");
  EXPECT_EQ(code_of(CommError("")), "COLLECTIVE");
  EXPECT_EQ(code_of(DeviceError("")), "DEVICE");
  EXPECT_EQ(code_of(Error("")), "FAILED");
  const Diverged diverged({.loss = 1, .loss_since = 7, .steps = 7, .advice = "look elsewhere"});
  EXPECT_EQ(code_of(diverged), "DIVERGED");
  EXPECT_EQ(error_json(diverged, trainer, "").at("step").integer(), 7);
  EXPECT_EQ(error_json(diverged, trainer, "").at("do").text(), "look elsewhere");
  try {
    try {
      throw IoError("the disk is full");
    } catch (const IoError&) {
      std::throw_with_nested(Error("--x: the disk is full"));
    }
  } catch (const Error& error) {
    EXPECT_EQ(code_of(error), "IO");
    EXPECT_EQ(error_json(error, trainer, "").at("cause").text(), "the disk is full");
  }
}

}  // namespace run_error_test
}  // namespace belfry
