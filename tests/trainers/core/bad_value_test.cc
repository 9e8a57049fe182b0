// Faults of numerics, one for each kind of op: find_bad_value() names the op, line and row.
#include "belfry/trainers/core/bad_value.h"

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/log.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/softmax.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/core/faults.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/weighted_mean.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace bad_value_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace faults;

// The first batch of a trainer, whose samples are all samples.
std::optional<BadValue> find_in_first(Trainer& trainer) {
  BuiltTraining& built = trainer.built();
  Prefetcher batches(built.train_data(), built.batches(), {}, 2, built.own_towers());
  return find_bad_value(built, batches.next(), 0, 7, trainer.session().step());
}

// Where the sample is in the first batch.
std::int64_t row_of_bad_sample(const BatchPlan& plan) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(plan.order_size()));
  plan.shuffle(0, order);
  return std::ranges::find(order, kBad) - order.begin();
}

void expect_fault(const Fault& fault, const std::optional<BadValue>& found, const BatchPlan& plan) {
  ASSERT_TRUE(found);
  EXPECT_THAT(found->kind, HasSubstr(fault.kind));
  EXPECT_EQ(found->of, fault.of) << found->where;
  const std::string wanted = "(built at faults.h:";
  const std::size_t begin = found->where.find(wanted);
  ASSERT_NE(begin, std::string::npos) << found->where;
  const int line = std::stoi(found->where.substr(begin + wanted.size()));
  EXPECT_GE(line, static_cast<int>(fault.line)) << found->where;
  EXPECT_LE(line, static_cast<int>(fault.line) + 6) << found->where;
  EXPECT_EQ(found->step, 7);
  EXPECT_FALSE(found->state);
  EXPECT_EQ(found->input, "");
  const std::int64_t row = row_of_bad_sample(plan);
  EXPECT_EQ(found->tower, row / (kSamples / plan.towers()));
  if (fault.rows == Fault::kRow) {
    EXPECT_EQ(found->row, row) << found->text();
    EXPECT_EQ(found->sample, kBad);
  } else {
    EXPECT_EQ(found->row, found->tower * kSamples / plan.towers()) << found->text();
  }
  EXPECT_EQ(found->variable, *fault.of ? "w" : "");
  EXPECT_THAT(found->text(), AllOf(HasSubstr(" first appears in "), HasSubstr(found->where)));
  EXPECT_NE(found->advice(), "");
}

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, AreNamedWithOpLineAndRow) {
  const auto bad = data(false);
  for (const int devices : {1, 2})
    for (const int shards : {devices, 4}) {
      SCOPED_TRACE(cat(devices, " devices, ", shards, " shards"));
      TrainerOptions options = options_for(GetParam(), devices);
      options.shards = shards;
      Trainer trainer(find_trainer("replicated"), std::move(options), *bad);
      const auto before = trainer.session().read(trainer.graph().variables()[0]);
      expect_fault(GetParam(), find_in_first(trainer), trainer.built().batches());
      EXPECT_EQ(trainer.session().read(trainer.graph().variables()[0]), before);
      EXPECT_EQ(trainer.session().step(), 0U);
    }
}

TEST_P(Faults, AreNotSeenInHealthyData) {
  const auto good = data(true);
  Trainer trainer(find_trainer("replicated"), options_for(GetParam(), 2), *good);
  const auto found = find_in_first(trainer);
  EXPECT_FALSE(found) << found->text();
  trainer.train();
  EXPECT_FALSE(find_divergence(trainer.built(), trainer.record()));
}

INSTANTIATE_TEST_SUITE_P(OfEachOp, Faults, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

// One process has the sample, and both name it. With good data no process sees a fault.
TEST(BadValue, IsTheSameInAllProcesses) {
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> texts;
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    for (const Fault& fault : kFaults)
      for (const bool is_good : {false, true}) {
        const auto samples = data(is_good);
        TrainerOptions options = options_for(fault, 1);
        options.batch_size = kSamples / 2;
        options.session = {.threads = 1, .processes = processes};
        Trainer trainer(find_trainer("replicated"), std::move(options), *samples);
        const auto found = find_in_first(trainer);
        const std::lock_guard lock(mutex);
        SCOPED_TRACE(cat(fault.name, is_good ? ", good" : ", bad"));
        EXPECT_NE(found.has_value(), is_good);
        if (is_good) continue;
        expect_fault(fault, found, trainer.built().batches());
        texts[fault.name].push_back(found ? found->text() : "");
      }
  });
  EXPECT_EQ(texts.size(), std::size(kFaults));
  for (const auto& [fault, of_both] : texts)
    EXPECT_THAT(of_both, testing::ElementsAre(of_both[0], of_both[0])) << fault;
}

// Each output is copied to the host.
TEST(BadValue, IsFoundOnGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  for (const Fault& fault : kFaults) {
    const std::string name = fault.name;
    if (name != "Exp" && name != "SqrtGradient" && name != "MatMul" && name != "Cast") continue;
    SCOPED_TRACE(name);
    const auto bad = data(false);
    TrainerOptions options = options_for(fault, 2);
    options.devices = {"/gpu:0", "/gpu:1"};
    Trainer trainer(find_trainer("replicated"), std::move(options), *bad);
    const auto found = find_in_first(trainer);
    expect_fault(fault, found, trainer.built().batches());
    EXPECT_THAT(found->device, HasSubstr("GPU"));
    EXPECT_THROW(trainer.train(), Diverged);
    EXPECT_TRUE(trainer.record().watch().bad_value());
  }
}

const Fault kNone{"None", "", "", 0, [](const Parts& p) { return p.x; }};

TEST(BadValue, OfTheDataNamesFieldAndSample) {
  const auto bad = data(false, kInf);
  Trainer trainer(find_trainer("replicated"), options_for(kNone, 2), *bad);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->input, "x");
  EXPECT_EQ(found->kind, "Mul");
  EXPECT_EQ(found->value, "inf");
  EXPECT_EQ(found->sample, kBad);
  EXPECT_EQ(found->advice(), "fix this sample, or leave it out");
  EXPECT_THAT(found->text(), HasSubstr(cat("whose input 'x' is not finite, in row ", found->row,
                                           " of the batch (training sample 5)")));
}

// All labels are 1.
TEST(BadValue, OfABatchWithoutLabelsBlamesNoSample) {
  const auto good = data(true);
  const auto model = [](Tower& tower, Output x, Output y) {
    return cross_entropy(tower, dense(tower, "fc", x, {.units = 3}), y, {.ignored = 1});
  };
  Trainer trainer(find_trainer("replicated"),
                  {.model = ModelFunction(model),
                   .optimizer = sgd(0.1),
                   .devices = cpus(2),
                   .batch_size = 8,
                   .session = {.threads = 1}},
                  *good);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sample, -1);
  EXPECT_THAT(found->text(),
              AllOf(HasSubstr("no sample of the batch has a weight"),
                    HasSubstr("built at bad_value_test.cc:"), Not(HasSubstr("training sample"))));
  EXPECT_THAT(found->advice(), HasSubstr("labels are all ignored"));
}

TEST(BadValue, OfAVariableNamesIt) {
  const auto good = data(true);
  Trainer trainer(find_trainer("replicated"), options_for(kNone, 2), *good);
  trainer.session().write(trainer.graph().stored_variable("w"),
                          Tensor({4}, std::vector<float>{1, std::nanf(""), 1, 1}));
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->state);
  EXPECT_EQ(found->variable, "w");
  EXPECT_THAT(found->text(), HasSubstr("whose variable 'w' was not finite before the step"));
  EXPECT_THAT(found->advice(), HasSubstr("look at the first value of 'w'"));
}

TEST(BadValue, OfARowOfATableNamesTheTable) {
  const auto good = data(true);
  std::vector<float> rows(8, 1);
  rows[3] = std::nanf("");
  const auto model = [&](Tower& tower, Output x, Output y) {
    const Variable table = variable(tower.graph(), "table", {4, 2},
                                    {.initializer = init::value(Tensor({4, 2}, rows))});
    return reduce_mean(gather(table.read(), y)) + reduce_mean(x);
  };
  Trainer trainer(find_trainer("replicated"),
                  {.model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16}, *good);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "Gather");
  EXPECT_EQ(found->variable, "table");
}

// Masks are infinite on purpose; softmax makes their values finite.
TEST(BadValue, IsNoInfinityThatLeadsNowhere) {
  const auto mask = [](Tower& tower, Output x) {
    const std::vector<float> values{0, 0, -kInf, -kInf};
    return x + constant(tower.graph(), Tensor({4}, values));
  };
  const auto good = data(true), bad = data(false);
  const auto model = [&](Tower& tower, Output x, Output) {
    const Output w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()}).read();
    return reduce_mean(softmax(mask(tower, x * w))) + reduce_mean(log(x * w));
  };
  const TrainerOptions options{
      .model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16};
  Trainer healthy(find_trainer("replicated"), options, *good);
  const auto none = find_in_first(healthy);
  EXPECT_FALSE(none) << none->text();
  Trainer faulty(find_trainer("replicated"), options, *bad);
  const auto found = find_in_first(faulty);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "Log");
}

// The mask is a constant, or a weight that is not trained; -inf of row 0 comes before nan of row 5.
TEST(BadValue, IsNoMaskBesideIt) {
  const auto bad = data(false);
  const std::vector<float> values{0, 0, 0, -kInf};
  for (const bool is_variable : {false, true}) {
    const auto model = [&](Tower& tower, Output x, Output) {
      Graph& graph = tower.graph();
      const Output mask =
          is_variable
              ? variable(graph, "mask", {4},
                         {.initializer = init::value(Tensor({4}, values)), .trainable = false})
                    .read()
              : constant(graph, Tensor({4}, values));
      const Output w = variable(graph, "w", {4}, {.initializer = init::ones()}).read();
      // 0 / 0 for the bad sample: softmax() of a row that is masked as a whole is NaN.
      const Output masked = x * w + mask;
      return reduce_mean(
          softmax(masked - where(greater(x, 0.0), fill_like(x, 0), fill_like(x, kInf))));
    };
    Trainer trainer(find_trainer("replicated"),
                    {.model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16}, *bad);
    const auto found = find_in_first(trainer);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, "Softmax") << found->text();
    EXPECT_EQ(found->value, "nan");
    EXPECT_EQ(found->sample, kBad);
    EXPECT_EQ(found->variable, "");
  }
}

// It reaches the loss, though.
TEST(BadValue, IsAMaskIfThereIsNothingElse) {
  const auto good = data(true);
  const auto model = [](Tower& tower, Output x, Output) {
    const Output w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()}).read();
    const Output mask = constant(tower.graph(), Tensor({4}, std::vector<float>{0, 0, 0, -kInf}));
    return reduce_mean(x * w + mask);
  };
  Trainer trainer(find_trainer("replicated"),
                  {.model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16}, *good);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "Add");
}

// It leads neither to the loss nor to a gradient.
TEST(BadValue, IsNoMetric) {
  const auto bad = data(false);
  const auto model = [](Tower& tower, Output x, Output) {
    const Output w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()}).read();
    tower.metric("ratio", reduce_mean(1.0 / x));
    return reduce_mean(x * w);
  };
  Trainer trainer(find_trainer("replicated"),
                  {.model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16}, *bad);
  const auto found = find_in_first(trainer);
  EXPECT_FALSE(found) << found->text();
}

// The gradients of all three towers are finite.
TEST(BadValue, OfCombinedGradientsNamesTheirSum) {
  const auto good = data(true);
  const auto model = [](Tower& tower, Output x, Output) {
    const Output w = variable(tower.graph(), "w", {4}, {.initializer = init::zeros()}).read();
    return reduce_mean(reduce_sum(x * w * 3.0, {1})) * 1e38;
  };
  Trainer trainer(
      find_trainer("replicated"),
      {.model = ModelFunction(model), .optimizer = sgd(0.1), .devices = cpus(3), .batch_size = 5},
      *good);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->variable, "w");
  EXPECT_EQ(found->row, -1);
  EXPECT_EQ(found->tower, -1);
  EXPECT_THAT(found->text(), HasSubstr(", on /job:localhost"));
}

TEST(BadValue, IsInTheErrorThatEndsTraining) {
  for (const Fault& fault : kFaults) {
    const std::string name = fault.name;
    if (name != "Exp" && name != "SqrtGradient" && name != "CastOfF16") continue;
    SCOPED_TRACE(name);
    const auto bad = data(false);
    Trainer trainer(find_trainer("replicated"), options_for(fault, 2), *bad);
    try {
      trainer.train();
      FAIL() << "it trained";
    } catch (const Diverged& diverged) {
      const ErrorFields fields = diverged.fields();
      EXPECT_NE(fields.op, "");
      EXPECT_THAT(fields.where, HasSubstr("built at faults.h:"));
      EXPECT_THAT(fields.device, HasSubstr("CPU"));
      EXPECT_EQ(fields.step, 1);
      EXPECT_EQ(fields.variable, name == "SqrtGradient" ? "w" : "");
      EXPECT_THAT(diverged.what(), AllOf(HasSubstr(cat(" first appears in ", fields.where)),
                                         HasSubstr("(training sample 5)"),
                                         HasSubstr("; this step changed no variable; "),
                                         Not(HasSubstr("no update had been made"))));
      EXPECT_EQ(diverged.found().bad->step, 1);
    }
  }
}

TEST(BadValue, IsInTheWarningOfAStepThatIsSkipped) {
  const Fault& fault = kFaults[0];
  const auto bad = data(false);
  TrainerOptions options = options_for(fault, 2);
  options.on_nonfinite = OnNonfinite::kSkip;
  options.warn_of_loss = true;
  testing::internal::CaptureStderr();
  Trainer trainer(find_trainer("replicated"), std::move(options), *bad);
  trainer.train();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("-inf first appears in Log '"), HasSubstr("(training sample 5)"),
                    HasSubstr("this step changes no variable")));
}

}  // namespace bad_value_test
}  // namespace belfry
