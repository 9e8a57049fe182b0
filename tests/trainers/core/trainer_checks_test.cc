// Wrong input of users is refused by name, before anything is built or trained.
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {
namespace trainer_checks_test {

using testing::AllOf;
using testing::HasSubstr;

using Fields = std::vector<Dataset::Field>;

// Data with a signature that a test chooses. All values are zeros.
struct SaidData final : Dataset {
  std::int64_t samples = 64;
  Fields fields = smooth_data(1)->signature();
  std::function<void()> on_gather = [] {};

  explicit SaidData(std::int64_t size) : samples(size) {}
  explicit SaidData(Fields signature) : fields(std::move(signature)) {}

  Fields signature() const override { return fields; }
  std::int64_t size() const override { return samples; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    on_gather();
    for (std::size_t f = 0; f < fields.size(); ++f)
      std::fill_n(out[f],
                  indices.size() * static_cast<std::size_t>(fields[f].shape.elements()) *
                      size_of(fields[f].dtype),
                  std::byte{0});
  }
  std::string describe() const override { return "data of somebody"; }
};

TrainerOptions good_options() {
  return {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4};
}

std::string refusal(TrainerOptions options, const Dataset& train, const Dataset* test = nullptr) {
  try {
    Trainer trainer(find_trainer("simple"), std::move(options), train, test);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(built)";
}

std::string refusal(TrainerOptions options) { return refusal(std::move(options), SaidData(64)); }

TEST(TrainerChecks, NameWhatTheOptionsLack) {
  EXPECT_EQ(refusal(good_options()), "(built)");
  TrainerOptions options = good_options();
  options.model = {};
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::model is empty"));
  options = good_options();
  options.optimizer = {};
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::optimizer is empty"));
  options.optimizer = Optimizer({.name = "mine", .rate = 0.1});
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::optimizer is empty"));
  options = good_options();
  options.callbacks = {std::make_shared<Callback>(), nullptr};
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::callbacks[1] is null, one of 2"));
  options = good_options();
  options.epochs = -1;
  EXPECT_THAT(refusal(options), HasSubstr("-1 epochs"));
}

// A callback with a name. Its state is {} unless a test changes it.
struct Named final : Callback {
  std::string own;
  explicit Named(std::string name) : own(std::move(name)) {}
  std::string name() const override { return own; }
};

TEST(TrainerChecks, NameCallbacksOfOneName) {
  TrainerOptions options = good_options();
  options.callbacks = {std::make_shared<Named>(""), std::make_shared<Named>("a"),
                       std::make_shared<Named>(""), std::make_shared<Named>("b")};
  EXPECT_EQ(refusal(options), "(built)");
  EXPECT_EQ(options.callbacks[1]->state().str(), "{}");
  options.callbacks.push_back(std::make_shared<Named>("a"));
  EXPECT_THAT(refusal(options),
              HasSubstr("TrainerOptions::callbacks[4] is called 'a', as [1] is;"));
}

TEST(TrainerChecks, NameFunctionsThatAreEmpty) {
  using Loss = Output (*)(Tower&, Output, Output);
  TrainerOptions options = good_options();
  options.model = Loss{nullptr};
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::model is empty"));
  options.model = std::function<Output(Tower&, Output, Output)>();
  EXPECT_THAT(refusal(options), HasSubstr("TrainerOptions::model is empty"));
  options = good_options();
  options.optimizer = sgd(RateFunction());
  EXPECT_THAT(refusal(options), HasSubstr("the learning rate is an empty function"));
}

TEST(TrainerChecks, RefuseNumbersOfSamplesThatCannotBe) {
  const SaidData good(64);
  for (const std::int64_t size : {std::int64_t{-5}, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()}) {
    const SaidData bad(size);
    for (const Uneven uneven : {Uneven::kDrop, Uneven::kWeight}) {
      TrainerOptions options = good_options();
      options.batches.uneven = uneven;
      EXPECT_THAT(refusal(options, bad), AllOf(HasSubstr("the training data (data of somebody)"),
                                               HasSubstr(cat(size)), HasSubstr("Dataset::size()")));
    }
    EXPECT_THAT(refusal(good_options(), good, &bad),
                AllOf(HasSubstr("the test data (data of somebody)"), HasSubstr(cat(size))));
  }
  const SaidData none(0);
  EXPECT_THAT(refusal(good_options(), none), HasSubstr("0"));
  EXPECT_THAT(refusal(good_options(), good, &none), HasSubstr("have no samples; give none at all"));
}

TEST(TrainerChecks, RefuseShapesThatCannotBe) {
  EXPECT_THAT(refusal(good_options(), SaidData(Fields{})), HasSubstr("have no fields"));
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const Shape& shape : {Shape{kUnknownSize}, Shape{3, -7}, Shape{kHuge, kHuge}})
    EXPECT_THAT(refusal(good_options(), SaidData({{"x", DType::kF64, shape}})),
                HasSubstr("the training data have a field x f64" + shape.str()));
}

TEST(TrainerChecks, RefuseTestDataWithOtherFields) {
  const Fields fields = smooth_data(1)->signature();
  const SaidData train(fields);
  std::vector<Fields> others(5, fields);
  others[0].pop_back();
  others[1][0].shape = {5};
  others[2][1].dtype = DType::kF32;
  others[3][0].name = "z";
  std::swap(others[4][0], others[4][1]);
  for (const Fields& other : others) {
    const SaidData test(other);
    EXPECT_THAT(refusal(good_options(), train, &test),
                AllOf(HasSubstr("the test data have the fields " + other[0].name),
                      HasSubstr("the training data have x f64[4], y f64[1]")));
  }
}

TEST(TrainerChecks, LeaveTheDataAloneInADryRun) {
  TrainerOptions options = good_options();
  options.session.dry_run = true;
  const SaidData train(-5), test(0);
  EXPECT_EQ(refusal(options, train, &test), "(built)");
}

// -- Whole programs.

TEST(Train, NamesWhatTheRecipeLacks) {
  const auto error = [](const auto& change) {
    Recipe recipe = small_recipe();
    change(recipe);
    const TrainResult result = run_train({"--devices=cpu:1"}, recipe);
    EXPECT_EQ(result.code, 1);
    return result.error;
  };
  EXPECT_THAT(error([](Recipe& r) { r.model = {}; }), HasSubstr("error: the recipe has no model"));
  EXPECT_THAT(error([](Recipe& r) { r.data = {}; }), HasSubstr("error: the recipe has no data"));
  using Source = std::unique_ptr<Dataset> (*)(bool);
  EXPECT_THAT(error([](Recipe& r) { r.data = Source{nullptr}; }), HasSubstr("has no data"));
  EXPECT_THAT(error([](Recipe& r) { r.data = std::function<std::unique_ptr<Dataset>(bool)>(); }),
              HasSubstr("has no data"));
  EXPECT_THAT(error([](Recipe& r) { r.optimizer = {}; }), HasSubstr("has no optimizer"));
  EXPECT_THAT(error([](Recipe& r) { r.callbacks = {nullptr}; }),
              HasSubstr("the recipe's callbacks[0] is null, one of 1"));
  EXPECT_THAT(error([](Recipe& r) { r.batch_size = -1; }), HasSubstr("batch size of -1"));
  EXPECT_THAT(error([](Recipe& r) { r.global_batch_size = 0; }), HasSubstr("batch size of 0"));
  EXPECT_THAT(error([](Recipe& r) { r.epochs = -3; }), HasSubstr("-3 epochs"));
  EXPECT_THAT(error([](Recipe& r) {
                r.data = [](bool) -> std::unique_ptr<Dataset> {
                  return std::make_unique<LazyDataset>(smooth_data(1)->signature(), nullptr);
                };
              }),
              HasSubstr("LazyDataset was made with an empty function"));
  EXPECT_THAT(error([](Recipe& r) {
                r.data = [](bool train) {
                  return std::make_unique<SaidData>(train ? std::int64_t{64} : -5);
                };
              }),
              HasSubstr("the test data (data of somebody) say that they have -5 samples"));
}

// -- Failures after an epoch.

class SaveFirstTest : public TrainTest {
 protected:
  ~SaveFirstTest() override { std::filesystem::remove_all(run_); }
  TrainResult train(const Recipe& recipe) {
    return run_train({"--devices=cpu:1", "--run_dir=" + run_}, recipe);
  }
  // The step of the checkpoint.
  std::uint64_t steps() const { return inspect_checkpoint(latest_checkpoint_of(run_)).step; }

  const std::string run_ = path(".run");
};

TEST_F(SaveFirstTest, AnEvaluationThatFailsLosesNoEpoch) {
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) -> std::unique_ptr<Dataset> {
    if (train) return small_data(true);
    auto test = std::make_unique<SaidData>(10);
    test->on_gather = [] { throw IoError("row 5 has label 99"); };
    return test;
  };
  const TrainResult result = train(recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr(cat("error: row 5 has label 99; step 8 is saved in ",
                                          std::filesystem::weakly_canonical(run_).string(), "\n")));
  EXPECT_EQ(steps(), 8u);
}

TEST_F(SaveFirstTest, ACallbackThatFailsLosesNoEpoch) {
  struct Fails : Callback {
    void after_training(Trainer&, const StepInfo&) override { throw Error("no more paper"); }
  };
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<Fails>()};
  const TrainResult result = train(recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("error: no more paper; step 16 is saved in "));
  EXPECT_EQ(steps(), 16u);
}

TEST_F(SaveFirstTest, AnErrorBeforeTheFirstSaveClaimsNone) {
  struct Fails : Callback {
    void after_step(Trainer&, const StepInfo&) override { throw Error("no more paper"); }
  };
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<Fails>()};
  EXPECT_EQ(train(recipe).error, "error: no more paper\n");
}

}  // namespace trainer_checks_test
}  // namespace belfry
