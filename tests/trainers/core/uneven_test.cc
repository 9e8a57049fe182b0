// Uneven batches: towers with unequal numbers of samples train like one device with all samples.
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/uneven_support.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/modes/equivalence.h"

namespace belfry {
namespace uneven_test {

// Batch norm is over the batches of all towers, so they equal one tower in everything.
Output normalised_model(Tower& tower, Output x, Output y) {
  Output h = batch_norm(tower, "bn0", x * 3.0 + 100.0, {.synchronised = true});
  h = tanh(dense(tower, "fc0", h, {.units = 5}));
  h = batch_norm(tower, "bn1", h, {.synchronised = true});
  tower.metric("mean_x", reduce_mean(x));
  return reduce_mean(square(dense(tower, "fc1", h, {.units = 1}) - y));
}

struct Kind {
  const char* kind;
  const char* strategy;
  int towers;
};
constexpr Kind kModes[] = {{"replicated", "collective", 2},     {"replicated", "naive", 3},
                           {"replicated", "collective", 4},     {"replicated", "hierarchical", 4},
                           {"parameter_server", "colocate", 3}, {"replicated", "collective", 8}};

struct Result {
  std::vector<double> values;
  double loss = 0, mean_x = 0;
};

Result train(const ModelFunction& model, const Optimizer& optimizer, const Dataset& data,
             const Kind& mode, int global, Uneven uneven, std::vector<double> weights = {}) {
  TrainerOptions options{.model = model,
                         .optimizer = optimizer,
                         .devices = cpus(mode.towers),
                         .aggregation = {.allreduce = mode.strategy},
                         .batch_size = global / mode.towers,
                         .batches = {.uneven = uneven, .tower_weights = std::move(weights)},
                         .epochs = 3};
  const auto trainer = std::make_unique<Trainer>(find_trainer(mode.kind), std::move(options), data);
  trainer->train();
  EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
  return {trained(*trainer), trainer->metric("loss"), trainer->metric("mean_x")};
}

void expect_like_one_device(const ModelFunction& model, const Optimizer& optimizer, double bound) {
  constexpr int kGlobal = 24;
  // The sizes: one less than full; fewer than towers; larger than the epoch.
  std::vector<std::int64_t> sizes{47, 48, 50, 25, 11, 3};
  if (kSanitized) sizes = {25, 3};
  for (const std::int64_t samples : sizes) {
    const auto data = smooth_data(samples);
    const Result one = train(model, optimizer, *data, {"simple", "", 1}, kGlobal, Uneven::kWeight);
    for (const Kind& mode : kModes)
      for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
        for (const bool shares : {false, true}) {
          std::vector<double> weights;
          for (int t = 0; shares && t < mode.towers; ++t) weights.push_back(1 + t % 3 * 0.5);
          const Result many =
              train(model, optimizer, *data, mode, kGlobal, uneven, std::move(weights));
          const std::string what = cat(samples, " samples, ", mode.kind, " ", mode.strategy, " ",
                                       mode.towers, " ", name_of(uneven), shares ? " shares" : "");
          expect_near(many.values, one.values, bound, what);
          expect_near({many.loss, many.mean_x}, {one.loss, one.mean_x}, bound, what);
        }
  }
}

TEST(UnevenTowers, TrainLikeOneDevice) {
  expect_like_one_device(smooth_model, momentum(0.05), 1e-10);
}

TEST(UnevenTowers, CountTheirOptimizersStepsOnce) {
  expect_like_one_device(smooth_model, adam(0.01), 1e-8);
}

TEST(UnevenTowers, TrainLikeOneDeviceWithSynchronisedBatchNorm) {
  expect_like_one_device(normalised_model, momentum(0.05), 1e-8);
}

TEST(UnevenTowers, HaveTheBitsOfPlainOnesWhereAllCountAlike) {
  const auto data = smooth_data(48);
  const auto bits = [&](Uneven uneven, std::vector<double> weights) {
    return train(smooth_model, adam(0.01), *data, {"replicated", "collective", 4}, 24, uneven,
                 std::move(weights))
        .values;
  };
  const std::vector<double> plain = bits(Uneven::kDrop, {});
  for (const Uneven uneven : {Uneven::kDrop, Uneven::kPad, Uneven::kWeight, Uneven::kError}) {
    EXPECT_EQ(bits(uneven, {}), plain);
    EXPECT_EQ(bits(uneven, {2, 2, 2, 2}), plain);
  }
}

// Each tower takes the moments of its own batch, but averages are over all samples.
TEST(UnevenTowers, MoveAveragesBySamples) {
  const auto data = smooth_data(7);
  const ModelFunction model = [](Tower& tower, Output x, Output y) {
    const Output h = batch_norm(tower, "bn", x, {.momentum = 0});
    return reduce_mean(square(dense(tower, "fc", h, {.units = 1}) - y));
  };
  std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 6};
  const Tensor x = gather_tensors(*data, all)[0];
  double mean = 0, square = 0;
  for (std::size_t i = 0; i < 28; i += 4) mean += x.data<double>()[i] / 7;
  for (std::size_t i = 0; i < 28; i += 4) square += std::pow(x.data<double>()[i] - mean, 2) / 7;
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
    TrainerOptions options{.model = model,
                           .optimizer = sgd(0.1),
                           .devices = cpus(3),
                           .batch_size = 5,
                           .batches = {.uneven = uneven}};
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    trainer.train();
    const auto value = [&](const char* name) {
      return trainer.session().read(trainer.graph().stored_variable(name)).data<double>()[0];
    };
    EXPECT_NEAR(value("bn/mean/EMA"), mean, 1e-14);
    EXPECT_NEAR(value("bn/variance/EMA"), square, 1e-14);
  }
}

TEST(UnevenTowers, GoOnFromACheckpointToTheSameBits) {
  const test::TemporaryFolder folder;
  const auto data = smooth_data(27);  // steps of 8, 8, 8 and 3
  const auto make = [&](Uneven uneven, std::int64_t max_steps) {
    TrainerOptions options{.model = normalised_model,
                           .optimizer = adam(0.01),
                           .devices = cpus(4),
                           .batch_size = 2,
                           .batches = {.uneven = uneven},
                           .epochs = 3,
                           .max_steps = max_steps};
    return std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), *data);
  };
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
    const auto whole = make(uneven, 0);
    whole->train();
    EXPECT_EQ(whole->steps(), 12);
    for (const std::int64_t cut : {2, 3, 4, 5, 8}) {
      const auto first = make(uneven, cut);
      first->train();
      remove_tree(local_file_system(), folder.path() + "/checkpoint");
      save_training(*first, folder.path() + "/checkpoint");
      const auto rest = make(uneven, 0);
      restore_training(*rest, folder.path() + "/checkpoint");
      EXPECT_EQ(rest->progress().position().samples, cut % 4 * 8);
      rest->train();
      EXPECT_EQ(rest->steps(), 12);
      EXPECT_EQ(state_hash(rest->session(), rest->graph()),
                state_hash(whole->session(), whole->graph()));
      EXPECT_EQ(params_hash(rest->session(), rest->graph()),
                params_hash(whole->session(), whole->graph()));
    }
  }
}

TEST(UnevenTowers, FeedScheduledRatesInEveryForm) {
  const auto data = smooth_data(11);
  std::vector<std::int64_t> asked;
  const Optimizer scheduled = sgd([&](const StepInfo& info) {
    asked.push_back(info.step);
    return 0.1;
  });
  const Kind mode{"replicated", "collective", 4};
  const Result fed = train(normalised_model, scheduled, *data, mode, 8, Uneven::kWeight);
  const Result fixed = train(normalised_model, sgd(0.1), *data, mode, 8, Uneven::kWeight);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(fed.values, fixed.values);
}

// A tower that repeats samples may compute anything: here, NaN.
TEST(UnevenTowers, LetNothingThroughFromSamplesThatDoNotCount) {
  const auto data = smooth_data(5);
  const ModelFunction model = [](Tower& tower, Output x, Output y) {
    const Output loss = smooth_model(tower, x, y);
    return tower.is_training() && tower.index() > 1 ? loss * std::nan("") : loss;
  };
  const Kind mode{"replicated", "collective", 4};
  const Result result = train(model, adam(0.01), *data, mode, 16, Uneven::kPad);
  for (const double value : result.values) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(std::isfinite(result.loss));
}

// Both forms write the copies alike, so the copies can share a storage.
TEST(UnevenTowers, ShareReplicasWithTheBitsOfPrivateOnes) {
  const auto data = smooth_data(27);  // steps of 12, 12 and 3
  for (const ModelFunction& model : {ModelFunction(smooth_model), ModelFunction(normalised_model)})
    for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
      std::string reference;
      for (const bool fuses : {false, true})
        for (const bool shares : {false, true}) {
          TrainerOptions options{.model = model,
                                 .optimizer = adam(0.01),
                                 .devices = cpus(4),
                                 .batch_size = 3,
                                 .batches = {.uneven = uneven},
                                 .epochs = 3,
                                 .session = {.fuse = fuses, .share_replicas = shares}};
          Trainer trainer(find_trainer("replicated"), std::move(options), *data);
          trainer.train();
          Session& session = trainer.session();
          EXPECT_EQ(count_shared(session, trainer.graph()) > 0, shares) << name_of(uneven);
          EXPECT_TRUE(differing_replicas(session, trainer.graph()).empty());
          const std::string hash = state_hash(session, trainer.graph());
          if (reference.empty()) reference = hash;
          EXPECT_EQ(hash, reference) << name_of(uneven) << fuses << shares;
        }
    }
}

TEST(UnevenTowers, HaveTheSameBitsInAllCanonicalModes) {
  const auto data = smooth_data(27);
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
    const TrainerOptions options{.model = smooth_model,
                                 .optimizer = adam(0.01),
                                 .devices = cpus(4),
                                 .batch_size = 3,
                                 .batches = {.uneven = uneven, .tower_weights = {2, 1, 1, 0.5}}};
    // Only modes of the library, for which the gradients suffice.
    std::vector<Mode> modes = all_modes(options.devices);
    std::erase_if(modes, [](const Mode& mode) {
      const std::set<std::string> tried{"collective", "naive",    "naive_cpu",    "shuffle",
                                        "ring",       "colocate", "hierarchical", ""};
      return !tried.contains(mode.allreduce) || mode.gradient_repacking > 0;
    });
    const Equivalence result = check_equivalence(options, *data, 6, modes);
    EXPECT_TRUE(result.holds()) << result.to_table();
    int canonical = 0;
    for (const Equivalence::Entry& entry : result.entries) {
      canonical += entry.canonical;
      EXPECT_EQ(entry.refusal.empty(), find_trainer(entry.mode.trainer).combines())
          << entry.mode.name() << ": " << entry.refusal;
    }
    EXPECT_GE(canonical, 20);
  }
}

TEST(UnevenTowers, AreRefusedByTheAsyncTrainer) {
  const auto data = smooth_data(16);
  const auto refusal = [&](const char* async, Uneven uneven, std::vector<double> weights,
                           const ModelFunction& model) -> std::string {
    try {
      Trainer(find_trainer("async"),
              {.model = model,
               .optimizer = sgd(0.1),
               .devices = cpus(2),
               .async = async,
               .batch_size = 4,
               .batches = {.uneven = uneven, .tower_weights = std::move(weights)}},
              *data);
      return "";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  using ::testing::HasSubstr;
  for (const char* async : {"ordered", "free"}) {
    EXPECT_EQ(refusal(async, Uneven::kError, {}, smooth_model), "");
    EXPECT_THAT(refusal(async, Uneven::kWeight, {}, smooth_model),
                HasSubstr("uneven=weight gives devices batches"));
    EXPECT_THAT(refusal(async, Uneven::kPad, {}, smooth_model),
                HasSubstr("uneven=pad gives devices batches"));
    EXPECT_THAT(refusal(async, Uneven::kDrop, {2, 1}, smooth_model),
                HasSubstr("tower_weights=2,1 gives devices batches"));
    EXPECT_THAT(refusal(async, Uneven::kDrop, {}, normalised_model), HasSubstr("synchronised"));
  }
}

}  // namespace uneven_test
}  // namespace belfry
