// Faults of numerics, one for each kind of op: find_bad_value() names the op, line and row.
#include "belfry/trainers/core/bad_value.h"

#include <cmath>
#include <limits>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/log.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/stand_in_gpus.h"
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

constexpr std::int64_t kSamples = 16, kBad = 5;
constexpr float kInf = std::numeric_limits<float>::infinity();

// 16 samples "x" f32 [4], from 0.5 to 1.1, and "y" i32, all 1. Sample 5 of bad data has only
// `bad`.
std::unique_ptr<Dataset> data(bool good, float bad = 0) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (int j = 0; j < 4; ++j)
      x.push_back(i == kBad && !good ? bad : 0.5F + 0.01F * static_cast<float>(4 * i + j));
  const std::vector<std::int32_t> y(kSamples, 1);
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({kSamples, 4}, x), DType::kF32, {4}},
                                         {"y", Tensor({kSamples}, y), DType::kI32, {}}},
      "numbers");
}

// What a fault is made of: x, whose row is 0 for the bad sample; `m`, whose elements are 1 for
// the bad sample, and otherwise 0; and the labels. The gradients of x and m reach a variable.
struct Parts {
  Tower& tower;
  Output x, m, labels;
};

struct Fault {
  const char* name;
  const char* kind;  // of the op
  const char* of;    // of the forward op, for a gradient
  unsigned line;     // before those of the op
  Output (*make)(const Parts& parts);
  enum Rows { kRow, kFirstRow } rows = kRow;
  double factor = 1;  // of the loss
  Precision precision = Precision::kF32;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

Output loss_of(const Fault& fault, Tower& tower, Output x, Output labels) {
  const Variable w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()});
  const Output moved = x * w;
  const Output made = fault.make({tower, moved, 2.0 * relu(0.5 - moved), labels});
  return reduce_mean(cast(made, DType::kF32)) * fault.factor;
}

Output ones(const Parts& parts, Shape shape) {
  return variable(parts.tower.graph(), "ones", shape,
                  {.initializer = init::ones(), .trainable = false})
      .read();
}

Output image(Output x) { return reshape(x, {kUnknownSize, 2, 2, 1}); }

const Fault kFaults[] = {
    {"Log", "Log", "", __LINE__, [](const Parts& p) { return log(p.x); }},
    {"LogGradient", "", "Log", __LINE__, [](const Parts& p) { return log(square(p.x) + 2e-38); },
     Fault::kRow, 1e6},
    {"Sqrt", "Sqrt", "", __LINE__, [](const Parts& p) { return sqrt(p.x - 0.25); }},
    {"SqrtGradient", "", "Sqrt", __LINE__, [](const Parts& p) { return sqrt(p.x); }},
    {"Div", "Div", "", __LINE__, [](const Parts& p) { return 1.0 / p.x; }},
    {"DivGradient", "", "Div", __LINE__, [](const Parts& p) { return p.x / (square(p.x) + 2e-38); },
     Fault::kRow, 1e6},
    {"Exp", "Exp", "", __LINE__, [](const Parts& p) { return exp(p.m * 100.0); }},
    {"Square", "Square", "", __LINE__, [](const Parts& p) { return square(p.m * 1e30); }},
    {"Mul", "Mul", "", __LINE__, [](const Parts& p) { return p.m * 1e30 * (p.m * 1e30); }},
    {"Add", "Add", "", __LINE__, [](const Parts& p) { return p.m * 3e38 + p.m * 3e38; }},
    {"Sub", "Sub", "", __LINE__, [](const Parts& p) { return p.m * 3e38 - p.m * -3e38; }},
    {"AddN", "AddN", "", __LINE__,
     [](const Parts& p) {
       return add_n({{p.m * 3e38, p.m * 3e38, p.m}});
     }},
    {"MatMul", "MatMul", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 3e38, ones(p, {4, 2}));
     }},
    {"Conv2d", "Conv2d", "", __LINE__,
     [](const Parts& p) {
       return conv2d(image(p.m * 3e38), ones(p, {2, 2, 1, 1}));
     }},
    {"AvgPool", "AvgPool", "", __LINE__,
     [](const Parts& p) { return avg_pool(image(p.m * 3e38), {.window = 2, .stride = 2}); }},
    {"ReduceSum", "ReduceSum", "", __LINE__,
     [](const Parts& p) { return reduce_sum(p.m * 3e38, {1}); }},
    {"SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy", "", __LINE__,
     [](const Parts& p) {
       const std::vector<float> signs{1, -1, 0, 0};
       return sparse_softmax_cross_entropy(
           p.m * 3e38 * constant(p.tower.graph(), Tensor({4}, signs)), p.labels);
     }},
    {"SigmoidCrossEntropy", "SigmoidCrossEntropy", "", __LINE__,
     [](const Parts& p) { return sigmoid_cross_entropy(p.m * 3e38, p.m * -20.0); }},
    {"LayerNorm", "LayerNorm", "", __LINE__,
     [](const Parts& p) { return layer_norm(p.tower, "norm", p.x, {.epsilon = 0}); }},
    {"BatchNorm", "BatchNorm", "", __LINE__,
     [](const Parts& p) {
       // 0 for the whole tower of the bad sample, whose variance then is 0.
       const Output zero = relu(1.0 - reduce_sum(p.m) * 100.0);
       const Output gamma = ones(p, {4});
       return batch_norm_train(p.x * zero, gamma, gamma, {.epsilon = 0}).y;
     },
     Fault::kFirstRow},
    {"Attention", "Attention", "", __LINE__,
     [](const Parts& p) {
       const Output q = reshape(p.m * 1e30, {kUnknownSize, 2, 2});
       return causal_attention(q, q, q);
     }},
    {"Dropout", "Dropout", "", __LINE__, [](const Parts& p) { return dropout(p.m * 3e38, 0.5); }},
    {"Cast", "Cast", "", __LINE__, [](const Parts& p) { return cast(p.m * 1e5, DType::kF16); }},
    {"CastOfF16", "Cast", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 1e5, ones(p, {4, 2}));
     },
     Fault::kRow, 1, Precision::kF16},
    {"MatMulOfF16", "MatMul", "", __LINE__,
     [](const Parts& p) {
       return matmul(p.m * 5e4, ones(p, {4, 2}));
     },
     Fault::kRow, 1, Precision::kF16},
};

TrainerOptions options_for(const Fault& fault, int devices) {
  return {
      .model = [&fault](Tower& tower, Output x, Output y) { return loss_of(fault, tower, x, y); },
      .optimizer = sgd(1e-6),
      .devices = cpus(devices),
      .batch_size = static_cast<int>(kSamples) / devices,
      .precision = fault.precision,
      .warn_of_loss = false};
}

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
  const std::string wanted = "(built at bad_value_test.cc:";
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

// One process has the sample, and both name it.
TEST(BadValue, IsTheSameInAllProcesses) {
  for (const Fault& fault : kFaults) {
    if (fault.kind != std::string("Exp") && fault.of != std::string("Sqrt") &&
        fault.kind != std::string("Cast"))
      continue;
    SCOPED_TRACE(fault.name);
    std::mutex mutex;
    std::vector<std::string> texts;
    test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
      const auto bad = data(false);
      TrainerOptions options = options_for(fault, 1);
      options.batch_size = kSamples / 2;
      options.session = {.threads = 1, .processes = processes};
      Trainer trainer(find_trainer("replicated"), std::move(options), *bad);
      const auto found = find_in_first(trainer);
      const std::lock_guard lock(mutex);
      expect_fault(fault, found, trainer.built().batches());
      texts.push_back(found ? found->text() : "");
    });
    ASSERT_EQ(texts.size(), 2U);
    EXPECT_EQ(texts[0], texts[1]);
  }
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
  EXPECT_EQ(found->advice(), "mend this sample, or leave it out");
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

TEST(BadValue, OfAMetricIsFoundLast) {
  const auto bad = data(false);
  const auto model = [](Tower& tower, Output x, Output) {
    const Output w = variable(tower.graph(), "w", {4}, {.initializer = init::ones()}).read();
    tower.metric("ratio", reduce_mean(1.0 / x));
    return reduce_mean(x * w);
  };
  Trainer trainer(find_trainer("replicated"),
                  {.model = ModelFunction(model), .optimizer = sgd(0.1), .batch_size = 16}, *bad);
  const auto found = find_in_first(trainer);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "Div");
  EXPECT_EQ(found->sample, kBad);
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
      EXPECT_THAT(fields.where, HasSubstr("built at bad_value_test.cc:"));
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
                    HasSubstr("this step changes nothing")));
}

}  // namespace bad_value_test
}  // namespace belfry
