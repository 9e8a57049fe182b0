#include "belfry/trainers/runs/tensorboard.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/runs/event_reader.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/runs/stats_log.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace tensorboard_test {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::SizeIs;
using testing::UnorderedElementsAre;

std::vector<std::int64_t> steps(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// Records the metrics of the trainer.
struct Watch final : Callback {
  std::vector<float> losses, tested;
  void after_step(Trainer& trainer, const StepInfo&) override {
    losses.push_back(static_cast<float>(trainer.metric("loss")));
  }
  void after_evaluation(Trainer& trainer, const StepInfo&) override {
    tested.push_back(static_cast<float>(trainer.metric("validation_mean_x")));
  }
};

// Why a trainer does not take these histograms.
std::string refusal(const HistogramOptions& histograms, const char* kind = "simple",
                    const char* async = "ordered") {
  const auto data = smooth_data(8);
  try {
    Trainer trainer(find_trainer(kind),
                    {.model = smooth_model,
                     .optimizer = sgd(0.1),
                     .devices = cpus(kind == std::string_view("simple") ? 1 : 2),
                     .async = async,
                     .batch_size = 4,
                     .histograms = histograms},
                    *data);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

// Epochs have 5 steps, with an evaluation after each epoch.
class TensorBoardTest : public testing::Test {
 protected:
  // Trains from the end of step `from` to the end of step `to`.
  void train(FileSystem& files, std::int64_t from, std::int64_t to,
             HistogramOptions histograms = {}) {
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd([](const StepInfo& info) {
                             return 0.1 / static_cast<double>(info.step + 1);
                           }),
                           .batch_size = 4,
                           .epochs = 100,
                           .max_steps = to,
                           .log_gradient_norms = norms_,
                           .histograms = std::move(histograms)};
    options.callbacks = {std::make_shared<TensorBoard>("/disk/tb", TensorBoardOptions(), files),
                         std::make_shared<Evaluation>(console_.console), watch_};
    if (also_) options.callbacks.push_back(also_);
    Trainer trainer(find_trainer("simple"), std::move(options), *data_, test_.get());
    trainer.progress().resume({.steps = from, .epoch = from / 5, .samples = from % 5 * 4});
    trainer.train();
    hash_ = params_hash(trainer.session(), trainer.graph());
  }
  Shown shown(const std::string& run) { return shown_in(disk_, "/disk/tb/" + run); }

  MemoryFileSystem disk_{"/disk"};
  FakeConsole console_;
  std::unique_ptr<Dataset> data_ = smooth_data(20), test_ = smooth_data(8);
  std::shared_ptr<Callback> also_;
  bool norms_ = false;
  std::string hash_;  // of the variables at the end
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
};

TEST_F(TensorBoardTest, ShowsEachStepUnderTrainAndEachEvaluationUnderValidation) {
  train(disk_, 0, 12);
  const Shown train = shown("train"), validation = shown("validation");
  EXPECT_THAT(train.steps, UnorderedElementsAre(Key("loss"), Key("mean_x"), Key("learning_rate"),
                                                Key("examples_per_second")));
  for (const auto& [tag, at] : train.steps) EXPECT_EQ(at, steps(1, 12)) << tag;
  EXPECT_EQ(train.scalars.at("loss"), watch_->losses);
  EXPECT_THAT(train.scalars.at("examples_per_second"), Each(Gt(0)));
  EXPECT_THAT(validation.steps, UnorderedElementsAre(Key("loss"), Key("mean_x")));
  for (const auto& [tag, at] : validation.steps) EXPECT_THAT(at, ElementsAre(5, 10, 12)) << tag;
  EXPECT_EQ(validation.scalars.at("mean_x"), watch_->tested);
}

TEST_F(TensorBoardTest, TheLearningRateIsThatOfTheStep) {
  train(disk_, 0, 3);
  EXPECT_THAT(shown("train").scalars["learning_rate"], ElementsAre(0.1f, 0.05f, 0.1f / 3));
}

// The killed run made the evaluation of step 5, and the resumed run makes it again.
TEST_F(TensorBoardTest, AResumedRunShowsEachStepOnce) {
  train(disk_, 0, 8);
  train(disk_, 5, 7);
  train(disk_, 7, 12);
  EXPECT_EQ(shown("train").steps["loss"], steps(1, 12));
  EXPECT_THAT(shown("validation").steps["loss"], ElementsAre(5, 7, 10, 12));
}

TEST_F(TensorBoardTest, SpeedsAreThoseOfTheStatsLog) {
  also_ = std::make_shared<StatsLog>(disk_, "/disk/stats.jsonl");
  train(disk_, 0, 4);
  std::vector<float> logged;
  const std::string text = text_of(disk_, "/disk/stats.jsonl");
  for (const std::string_view line : split(text, '\n'))
    if (line.find("examples_per_second") != line.npos)
      logged.push_back(nlohmann::json::parse(line)["examples_per_second"]);
  EXPECT_EQ(shown("train").scalars["examples_per_second"], logged);
}

TEST_F(TensorBoardTest, AnEvaluationThatIsMadeAgainReplacesTheOneBefore) {
  train(disk_, 0, 5);
  train(disk_, 5, 5);  // nothing is left but the evaluation at the end
  EXPECT_EQ(watch_->tested.size(), 2u);
  EXPECT_EQ(shown("train").steps["loss"], steps(1, 5));
  EXPECT_THAT(shown("validation").steps["loss"], ElementsAre(5));
}

TEST_F(TensorBoardTest, HistogramsAreOfTheTrainableVariablesWhenTheyAreDue) {
  train(disk_, 0, 7, {.every = 3});
  const Shown train = shown("train");
  for (const char* name : {"fc0/W", "fc0/b", "fc1/W", "fc1/b"}) {
    ASSERT_THAT(train.steps, Contains(Key(name)));
    EXPECT_THAT(train.steps.at(name), ElementsAre(3, 6));
  }
  EXPECT_THAT(train.steps, SizeIs(4 + 4));
  EXPECT_THAT(refusal({.every = -1}), HasSubstr("histograms_every is -1; 0 makes none"));
}

TEST_F(TensorBoardTest, HistogramsShowGradientsAndActivationsThatPatternsName) {
  train(disk_, 0, 7);
  const std::string hash = hash_;
  train(disk_, 0, 7, {.every = 3, .patterns = {"*/b", "gradients/*/W", "activations/fc0"}});
  EXPECT_EQ(hash_, hash);
  const Shown train = shown("train");
  for (const char* name :
       {"fc0/b", "fc1/b", "gradients/fc0/W", "gradients/fc1/W", "activations/fc0"}) {
    ASSERT_THAT(train.steps, Contains(Key(name)));
    EXPECT_THAT(train.steps.at(name), ElementsAre(3, 6)) << name;
  }
  EXPECT_THAT(train.steps, SizeIs(4 + 5));
}

// The resumed run has a watched step at the same numbers, though its epochs begin elsewhere.
TEST_F(TensorBoardTest, WatchedStepsCountWithThoseOfRunsBefore) {
  train(disk_, 0, 4, {.every = 3, .patterns = {"gradients"}});
  train(disk_, 4, 12, {.every = 3, .patterns = {"gradients"}});
  EXPECT_THAT(shown("train").steps.at("gradients/fc0/b"), ElementsAre(3, 6, 9, 12));
}

// Keeps what the trainer has fetched for histograms, by steps.
struct Fetched final : Callback {
  std::vector<std::vector<NamedTensor>> steps, gradients;
  void after_step(Trainer& trainer, const StepInfo&) override {
    steps.push_back(trainer.record().watched());
    gradients.push_back(trainer.record().gradients());
  }
};

std::vector<double> numbers_of(const Tensor& tensor) {
  const std::span<const double> values = tensor.data<double>();
  return {values.begin(), values.end()};
}

TEST_F(TensorBoardTest, WatchedTensorsAreThoseOfTheStepOnAnyDevices) {
  std::vector<Tensor> first;
  for (const int devices : {1, 2, 4}) {
    const auto fetched = std::make_shared<Fetched>();
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.1),
                           .devices = cpus(devices),
                           .batch_size = 4 / devices,
                           .shards = 4,
                           .batches = {.gradient_accumulation_steps = 2},
                           .epochs = 9,
                           .max_steps = 4,
                           .keeps_gradients = true,
                           .histograms = {.every = 2, .patterns = {"gradients/fc0/W"}},
                           .callbacks = {fetched}};
    Trainer trainer(find_trainer("replicated"), std::move(options), *data_);
    trainer.train();
    ASSERT_THAT(fetched->steps, SizeIs(4));
    EXPECT_THAT(fetched->steps[0], IsEmpty());
    EXPECT_THAT(fetched->steps[2], IsEmpty());
    ASSERT_THAT(fetched->steps[3], SizeIs(1));
    EXPECT_EQ(fetched->steps[3][0].name, "gradients/fc0/W");
    first.push_back(fetched->steps[3][0].value);
    EXPECT_EQ(first.back(), first.front()) << devices;
    // The mean over the batches of the step, of which the other has the sum.
    std::vector<double> sums = numbers_of(fetched->gradients[3][0].value);
    for (double& sum : sums) sum *= static_cast<double>(0.5f);
    EXPECT_EQ(numbers_of(first.back()), sums);
  }
}

TEST_F(TensorBoardTest, RefusesPatternsThatFitNothing) {
  EXPECT_THAT(refusal({.every = 1, .patterns = {"fc7/W"}}),
              HasSubstr("histograms=fc7/W fits no trained variable; near are fc"));
  EXPECT_THAT(refusal({.every = 1, .patterns = {"gradients/fc7"}}),
              HasSubstr("histograms=gradients/fc7 fits no gradient; near are gradients/fc"));
  EXPECT_THAT(refusal({.every = 1, .patterns = {"activations/fc7"}}),
              HasSubstr("histograms=activations/fc7 fits no layer; near are activations/fc"));
  EXPECT_EQ(refusal({.every = 0, .patterns = {"fc7/W"}}), "(accepted)");
}

TEST_F(TensorBoardTest, RefusesGradientsOfTrainersThatCombineNone) {
  EXPECT_THAT(
      refusal({.every = 1, .patterns = {"gradients"}}, "async"),
      HasSubstr("histograms shows combined gradients, and the trainer async combines none"));
  EXPECT_EQ(refusal({.every = 1, .patterns = {"activations"}}, "async"), "(accepted)");
  EXPECT_THAT(refusal({.every = 1, .patterns = {"activations"}}, "async", "free"),
              HasSubstr("histograms=activations needs steps of all towers together"));
}

TEST_F(TensorBoardTest, ShowsNormsOfGradientsWithTheStep) {
  train(disk_, 0, 3);
  const std::string hash = hash_;
  norms_ = true;
  also_ = std::make_shared<StatsLog>(disk_, "/disk/stats.jsonl");
  train(disk_, 0, 3);
  EXPECT_EQ(hash_, hash);
  const Shown train = shown("train");
  const std::string text = text_of(disk_, "/disk/stats.jsonl");
  const auto line = nlohmann::json::parse(text.substr(0, text.find('\n')));
  double squares = 0;
  for (const std::string name : {"fc0/W", "fc0/b", "fc1/W", "fc1/b"}) {
    const std::string tag = "gradient_norm/" + name;
    ASSERT_THAT(train.steps, Contains(Key(tag)));
    EXPECT_EQ(train.steps.at(tag), steps(1, 3));
    squares += line[tag].get<double>() * line[tag].get<double>();
  }
  EXPECT_GT(squares, 0);
  EXPECT_NEAR(line["gradient_norm"].get<double>(), std::sqrt(squares), 1e-12);
  EXPECT_EQ(train.scalars.at("gradient_norm")[0], line["gradient_norm"].get<float>());
}

TEST_F(TensorBoardTest, WithoutTestDataThereIsNoValidation) {
  test_.reset();
  train(disk_, 0, 2);
  EXPECT_THAT(disk_.list("/disk/tb"), ElementsAre("train"));
}

TEST_F(TensorBoardTest, ThatCannotBeWrittenWarnsOnceAndTrainingGoesOn) {
  int calls = 0;
  for (;; ++calls) {  // until the first record of a step
    MemoryFileSystem files("/disk");
    files.at_call(calls, [](auto&) { throw IoError("no space left on the disk"); });
    watch_->losses.clear();
    testing::internal::CaptureStderr();
    try {
      train(files, 0, 7);
    } catch (const IoError&) {
      testing::internal::GetCapturedStderr();
      EXPECT_THAT(watch_->losses, IsEmpty()) << "it fails before the first step";
      continue;
    }
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(watch_->losses, SizeIs(7));
    if (files.waits()) break;
    EXPECT_THAT(log, HasSubstr("no space left on the disk; TensorBoard will show no more"));
    EXPECT_EQ(log.find("no space"), log.rfind("no space"));
  }
  EXPECT_EQ(calls, 2 * 5 + 7 + 2) << "making the files, and one for each step and evaluation";
}

// TensorBoard's own reader reads a run that was killed in the middle of a record and resumed.
TEST_F(TensorBoardTest, IsReadByTensorBoard) {
  const HistogramOptions histograms{.every = 2, .patterns = {"*", "gradients", "activations"}};
  train(disk_, 0, 8, histograms);
  train(disk_, 5, 12, histograms);
  const std::string top = temporary_path("");
  FileSystem& files = local_file_system();
  for (const std::string run : {"train", "validation"}) {
    files.create_directory(top + "/" + run);
    for (const std::string& name : disk_.list("/disk/tb/" + run)) {
      std::string text = text_of(disk_, "/disk/tb/" + run + "/" + name);
      if (run == "train" && name.ends_with("1")) text.pop_back();
      files.create(top + "/" + run + "/" + name)->append(std::as_bytes(std::span(text)));
    }
  }
  constexpr int kNoPackage = 77, kNoPython = 127;
  const auto check = [&] {
    return run_program(std::string(BELFRY_SOURCE_DIR) + "/scripts/check_tensorboard", {top});
  };
  const Finished good = check();
  // Appends the points of the second file once more, without a START.
  const std::string first = text_of(disk_, "/disk/tb/train/events.out.tfevents.00000002");
  const std::size_t start =
      12 + records_of(first)[0].size() + 4 + 12 + records_of(first)[1].size() + 4;
  files.create(top + "/train/events.out.tfevents.00000003")
      ->append(std::as_bytes(std::span(first).subspan(start)));
  const Finished twice = check();
  remove_tree(files, top);
  if (good.status == kNoPackage || good.status == kNoPython)
    GTEST_SKIP() << "needs the Python package tensorboard: scripts/check_tensorboard --install";
  EXPECT_EQ(good.status, 0) << good.output << good.errors;
  EXPECT_THAT(good.output, HasSubstr("train scalar loss: 12 points, steps 1 to 12\n"));
  for (const char* const name : {"fc0/W", "gradients/fc0/W", "activations/fc0"})
    EXPECT_THAT(good.output,
                HasSubstr(cat("train histogram ", name, ": 6 points, steps 2 to 12\n")));
  EXPECT_THAT(good.output, HasSubstr("validation scalar loss: 3 points, steps 5 to 12\n"));
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.output, HasSubstr("train scalar loss shows steps more than once: [6, 7, 8, "));
}

}  // namespace tensorboard_test
}  // namespace belfry
