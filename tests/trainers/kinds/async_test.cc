// The trainer "async" with updates in order, by the gradients of each tower.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/kinds/async_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace async_test {

using test::TemporaryFolder;
using ::testing::HasSubstr;

struct NamedOptimizer {
  const char* name;
  Optimizer (*make)();
};

// Makes K updates by hand. All towers compute gradients at the same values. A graph without towers
// divides them by K, and applies one after the other.
class ByHand {
 public:
  ByHand(int towers, const Optimizer& optimizer, Session& like) : towers_(towers) {
    const auto build = [&](Tower& tower) {
      const Output x = placeholder(model_, "x", DType::kF64, {4, 4});
      const Output y = placeholder(model_, "y", DType::kF64, {4, 1});
      tower.loss(smooth_model(tower, x, y));
      for (const Gradient& g : compute_gradients(tower.loss(), tower.trainables()))
        fetches_.emplace_back(g.value);
    };
    records_ = replicate(model_, cpus(towers), VariablePolicy::kOnOneDevice, build);
    std::vector<Gradient> gradients;
    for (const Variable v : records_[0].trainables) {
      const Variable same =
          variable(updates_, v.name(), v.shape(),
                   {.dtype = v.dtype(),
                    .initializer = init::value(like.read(like.graph().stored_variable(v.name())))});
      gradients.push_back({placeholder(updates_, "gradient", v.dtype(), v.shape()), same});
      variables_.push_back(same);
      inputs_.push_back(gradients.back().value);
    }
    update_ = &optimizer.apply(gradients);
    model_session_ = std::make_unique<Session>(
        model_, SessionOptions{.device_count = {{"CPU", towers}}, .threads = 1});
    session_ = std::make_unique<Session>(updates_);
  }

  void step(const Batch& batch) {
    for (std::size_t v = 0; v < variables_.size(); ++v)
      model_session_->write(records_[0].trainables[v], session_->read(variables_[v]));
    std::vector<FeedValue> feeds;
    for (std::size_t t = 0; t < records_.size(); ++t)
      for (std::size_t f = 0; f < 2; ++f)
        feeds.push_back({records_[t].inputs[f], batch.tensors[2 * t + f]});
    const std::vector<Tensor> gradients = model_session_->run(fetches_, feeds);
    for (std::size_t t = 0; t < records_.size(); ++t) {
      std::vector<FeedValue> one;
      for (std::size_t v = 0; v < inputs_.size(); ++v) {
        Tensor gradient = gradients[t * inputs_.size() + v];
        for (double& x : gradient.mutable_data<double>()) x /= towers_;
        one.push_back({inputs_[v], gradient});
      }
      const Fetch update(*update_);
      session_->run({&update, 1}, one);
    }
  }

  Session& session() { return *session_; }

 private:
  int towers_;
  Graph model_, updates_;
  std::vector<TowerRecord> records_;
  std::vector<Fetch> fetches_;
  std::vector<Variable> variables_;
  std::vector<Output> inputs_;
  Node* update_ = nullptr;
  std::unique_ptr<Session> model_session_, session_;
};

class SequentialUpdates : public ::testing::TestWithParam<std::tuple<int, NamedOptimizer>> {};

TEST_P(SequentialUpdates, ByHandEqualThoseInOrderBitForBit) {
  const auto [towers, optimizer] = GetParam();
  constexpr std::int64_t kSteps = 5;
  const auto data = smooth_data(towers * 4 * 3 + 1);  // crosses an epoch
  TrainerOptions options = async_options("ordered", towers);
  options.optimizer = optimizer.make();
  options.epochs = 2;
  options.max_steps = kSteps;
  options.shards = towers;  // by hand, a tower takes its rows at once
  Trainer trainer(find_trainer("async"), options, *data);
  ByHand expected(towers, options.optimizer, trainer.session());
  Prefetcher input(*data, trainer.built().batches());
  for (std::int64_t i = 0; i < kSteps; ++i) expected.step(input.next());
  trainer.train();
  EXPECT_EQ(trainer.steps(), kSteps);
  const Graph& graph = trainer.graph();
  int compared = 0;
  for (const Variable v : expected.session().graph().variables()) {
    EXPECT_EQ(trainer.session().read(graph.stored_variable(v.name())), expected.session().read(v))
        << v.name();
    ++compared;
  }
  EXPECT_GE(compared, 4);
  EXPECT_EQ(std::ssize(graph.variables()), compared);
  if (const Variable counter = graph.stored_variable("Adam/step")) {
    EXPECT_EQ(trainer.session().read(counter).item<std::int64_t>(), towers * kSteps);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, SequentialUpdates,
    ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                       ::testing::Values(NamedOptimizer{"sgd", [] { return sgd(0.1); }},
                                         NamedOptimizer{"momentum", [] { return momentum(0.05); }},
                                         NamedOptimizer{"adam", [] { return adam(0.01); }})),
    [](const auto& test) {
      return std::string(std::get<1>(test.param).name) + "_" +
             std::to_string(std::get<0>(test.param));
    });

Hashes train_digits(const char* kind, TrainerOptions options) {
  const auto data = data::generated_digits(96, 3);
  const auto trainer = std::make_unique<Trainer>(find_trainer(kind), std::move(options), *data);
  trainer->train();
  return hashes_of(*trainer);
}

TEST(Async, OfOneTowerIsTheSimpleTrainer) {
  const auto trained = [](const char* kind, const char* async) {
    TrainerOptions options = digit_options(async, 1);
    options.shards = 1;  // towers that run free have one each
    return train_digits(kind, std::move(options));
  };
  const Hashes simple = trained("simple", "");
  EXPECT_EQ(trained("async", "ordered"), simple);
  EXPECT_EQ(trained("async", "free"), simple);
}

TEST(Ordered, GivesTheSameBitsForAnyNumberOfThreads) {
  const Hashes one = train_digits("async", digit_options("ordered", 4, 1));
  EXPECT_EQ(train_digits("async", digit_options("ordered", 4, 2)), one);
  EXPECT_EQ(train_digits("async", digit_options("ordered", 4, 4)), one);
  EXPECT_NE(train_digits("replicated", digit_options("", 4)).params, one.params);
}

TEST(Ordered, GoesOnFromACheckpointToTheSameBits) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const auto data = data::generated_digits(96, 3);
  Trainer whole(find_trainer("async"), digit_options("ordered", 2), *data);
  whole.train();
  TrainerOptions options = digit_options("ordered", 2);
  options.max_steps = 5;
  Trainer half(find_trainer("async"), options, *data);
  half.train();
  save_training(half, path);
  options.max_steps = 0;
  Trainer rest(find_trainer("async"), options, *data);
  restore_training(rest, path);
  rest.train();
  EXPECT_EQ(rest.steps(), whole.steps());
  EXPECT_EQ(hashes_of(rest), hashes_of(whole));
}

TEST(Async, RefusesOtherModesByName) {
  const auto data = smooth_data(64);
  try {
    Trainer trainer(find_trainer("async"), async_options("fast", 2), *data);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("async=fast is neither ordered nor free"));
  }
}

TEST(Async, IsCanonicalForNoStrategy) {
  EXPECT_FALSE(find_trainer("async").canonical);
  EXPECT_TRUE(find_trainer("replicated").canonical);
  EXPECT_TRUE(find_trainer("async").takes_async());
  EXPECT_FALSE(find_trainer("replicated").takes_async());
}

TEST(Async, SpreadsVariablesAsTheParameterServerDoes) {
  const auto data = smooth_data(64);
  Trainer server(find_trainer("parameter_server"), async_options("", 3), *data);
  for (const char* async : {"ordered", "free"}) {
    Trainer trainer(find_trainer("async"), async_options(async, 3), *data);
    for (const Variable v : server.graph().variables(kTrainableVariables))
      EXPECT_EQ(trainer.session().placement(trainer.graph().stored_variable(v.name()).ref()),
                server.session().placement(v.ref()))
          << async << " " << v.name();
  }
}

}  // namespace async_test
}  // namespace belfry
