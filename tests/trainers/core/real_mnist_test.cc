// The convnet on real MNIST, if $BELFRY_DATA_DIR/mnist has it.
#include <cstdlib>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace real_mnist_test {

struct Mode {
  const char* kind;
  const char* strategy;
  int repacking = 0;
  int threads = 0;

  std::string str() const {
    return cat(kind, " ", strategy, ", ", repacking, " parts, ", threads, " threads");
  }
};

constexpr Mode kDefault{"replicated", "collective"};
const Mode kOthers[] = {{"replicated", "naive"},
                        {"replicated", "hierarchical"},
                        {"parameter_server", "colocate"},
                        {"replicated", "collective", 4, 1},
                        {"replicated", "naive", 4},
                        {"replicated", "hierarchical", 4, 4},
                        {"replicated", "collective", 0, 2},
                        {"parameter_server", "colocate", 0, 1}};

struct Outcome {
  std::string params, state;
  double test_accuracy = 0;
};

class RealMnist : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("BELFRY_DATA_DIR");
    if (!folder || !*folder) GTEST_SKIP() << "BELFRY_DATA_DIR names no folder with mnist/ in it";
    if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
    const RunDirs dirs{.data_dir = std::string(folder) + "/mnist"};
    train_ = data::mnist(dirs, true);
    test_ = data::mnist(dirs, false);
    ASSERT_EQ(train_->size(), 60000);
    ASSERT_EQ(test_->size(), 10000);
  }

  // Uses the defaults of examples/mnist.cc: cpu:4, 64 images per tower, Adam 1e-3.
  Outcome run(const Mode& mode, std::int64_t max_steps = 0, std::uint64_t seed = 1,
              int epochs = 3) const {
    std::FILE* const sink = std::tmpfile();
    Outcome outcome;
    {
      Console console(sink);
      TrainerOptions options{
          .model = find_model("mnist").model,
          .optimizer = adam(1e-3),
          .devices = {},
          .aggregation = {.allreduce = mode.strategy, .gradient_repacking = mode.repacking},
          .batch_size = 64,
          .epochs = epochs,
          .max_steps = max_steps,
          .seed = seed,
          .session = {.threads = mode.threads}};
      for (int t = 0; t < 4; ++t) options.devices.push_back(DeviceSpec::local("CPU", t));
      if (max_steps == 0) options.callbacks = {std::make_shared<Evaluation>(console)};
      const auto trainer = std::make_unique<Trainer>(find_trainer(mode.kind), std::move(options),
                                                     *train_, test_.get());
      trainer->train();
      EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
      outcome = {params_hash(trainer->session(), trainer->graph()),
                 state_hash(trainer->session(), trainer->graph())};
      if (max_steps == 0) outcome.test_accuracy = trainer->metric("validation_accuracy");
    }
    std::fclose(sink);
    return outcome;
  }

  // Expects equal hashes in all modes.
  void expect_equal_hashes(std::int64_t steps) const {
    const Outcome reference = run(kDefault, steps);
    for (const Mode& mode : kOthers) {
      const Outcome other = run(mode, steps);
      EXPECT_EQ(other.params, reference.params) << mode.str();
      EXPECT_EQ(other.state, reference.state) << mode.str();
    }
  }

  std::unique_ptr<Dataset> train_, test_;
};

TEST_F(RealMnist, HasEqualHashesAfter20StepsInAllModes) { expect_equal_hashes(20); }
TEST_F(RealMnist, LongHasEqualHashesAfter100StepsInAllModes) { expect_equal_hashes(100); }

TEST_F(RealMnist, LearnsInOneEpoch) { EXPECT_GE(run(kDefault, 0, 1, 1).test_accuracy, 0.97); }

TEST_F(RealMnist, LongReachesItsAccuracyInThreeEpochsOverSeeds) {
  double sum = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double accuracy = run(kDefault, 0, seed).test_accuracy;
    EXPECT_GE(accuracy, 0.984) << "seed " << seed;
    sum += accuracy;
  }
  EXPECT_GE(sum / 3, 0.986);
}

TEST_F(RealMnist, LongHasEqualHashesAfterThreeEpochsInAllModes) {
  const Outcome reference = run(kDefault);
  EXPECT_EQ(run(kDefault).state, reference.state) << "second run";
  for (const Mode& mode : kOthers) {
    const Outcome other = run(mode);
    EXPECT_EQ(other.params, reference.params) << mode.str();
    EXPECT_EQ(other.state, reference.state) << mode.str();
    EXPECT_EQ(other.test_accuracy, reference.test_accuracy) << mode.str();
  }
}

}  // namespace real_mnist_test
}  // namespace belfry
