// Processes that differ are all refused before the first step. Each error says which process
// differs, and in what.
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {
namespace disagreements_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kGlobalBatch = 24, kSamples = 5 * kGlobalBatch;

struct ModelOptions {
  int units = 5;
  DType dtype = DType::kF64;
  double dropout = 0;
  bool squares = false, deeper = false;
  std::vector<std::string> sides = {};  // layers beside the first, in their order
  bool normalised = false, synchronised = false;
};

// The same lines build all variants of the model.
ModelFunction model_of(ModelOptions wanted) {
  return [=](Tower& tower, Output x, Output y) {
    const Output input = wanted.dtype == DType::kF64 ? x : cast(x, wanted.dtype);
    Output hidden = dense(tower, "fc0", input, {.units = wanted.units});
    for (const std::string& side : wanted.sides)
      hidden = hidden + dense(tower, side, input, {.units = wanted.units});
    if (wanted.normalised)
      hidden = batch_norm(tower, "bn", hidden, {.synchronised = wanted.synchronised});
    hidden = wanted.squares ? square(hidden) : tanh(hidden);
    if (wanted.dropout > 0) hidden = dropout(tower, hidden, wanted.dropout);
    if (wanted.deeper) hidden = dense(tower, "more", hidden, {.units = 5});
    const Output result = dense(tower, "fc1", hidden, {.units = 1});
    return reduce_mean(square(cast(result, DType::kF64) - y));
  };
}

// The training of one process.
struct Training {
  TrainerOptions options;
  TrainerKind kind = find_trainer("replicated");
  std::unique_ptr<Dataset> data = smooth_data(kSamples), test = smooth_data(30);
  std::function<void(Trainer&)> prepare = [](Trainer&) {};
};
using Change = std::function<void(Training&)>;

Change of_options(const std::function<void(TrainerOptions&)>& change) {
  return [change](Training& training) { change(training.options); };
}

Change of_model(const ModelOptions& wanted) {
  return of_options([wanted](TrainerOptions& options) { options.model = model_of(wanted); });
}

// The errors of two processes, by rank, if one trains `first` and the other `second`.
std::vector<std::string> told(const Change& first, const Change& second) {
  std::vector<std::string> all(2);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    Training training{.options = {.model = model_of({}),
                                  .optimizer = adam(0.01),
                                  .batch_size = kGlobalBatch / 2,
                                  .epochs = 4,
                                  .max_steps = 6,
                                  .session = {.threads = 1, .processes = processes}}};
    (processes->rank() == 0 ? first : second)(training);
    all[static_cast<std::size_t>(processes->rank())] = message_of<Error>([&] {
      Trainer trainer(training.kind, training.options, *training.data, training.test.get());
      training.prepare(trainer);
      const std::int64_t before = trainer.steps();
      const std::string message = message_of<Error>([&] { trainer.train(); });
      EXPECT_EQ(trainer.steps(), before) << message;
      throw Error(message);
    });
  });
  return all;
}

void expect_refusal(const std::string& why, const Change& first, const Change& second) {
  const std::vector<std::string> all = told(first, second);
  for (const std::string& message : all)
    EXPECT_THAT(message, AllOf(HasSubstr("rank 1 on "), HasSubstr(why)));
}

const Change kNone = [](Training&) {};

struct Disagreement {
  const char* why;
  Change change;
};

void expect_refusals(std::span<const Disagreement> all) {
  for (const Disagreement& one : all) expect_refusal(one.why, kNone, one.change);
}

TEST(Disagreements, AboutOptionsAreNamedWithBothValues) {
  const Disagreement all[] = {
      {"the seed is 7 there, and 1 in rank 0", of_options([](auto& o) { o.seed = 7; })},
      {"the optimizer is sgd there, and adam in rank 0",
       of_options([](auto& o) { o.optimizer = sgd(0.01); })},
      {"the option beta1 is 0.5 there, and 0.9 in rank 0",
       of_options([](auto& o) { o.optimizer = adam({.rate = 0.01, .beta1 = 0.5}); })},
      {"the learning rate is 0.02 there, and 0.01 in rank 0",
       of_options([](auto& o) { o.optimizer = adam(0.02); })},
      {"the learning rate is ",
       of_options([](auto& o) { o.optimizer = adam(0.01).with_rate(warm_up(0.01, 3)); })},
      {"the moving average of weights (moving_average) is 0.9 there, and none in rank 0",
       of_options([](auto& o) { o.optimizer = adam(0.01).with_averages({.decay = 0.9}); })},
      {"the list of groups of variables (group) is fc0:rate=2 there, and none in rank 0",
       of_options(
           [](auto& o) { o.optimizer = adam(0.01).with_groups(parse_groups("fc0:rate=2")); })},
      {"the largest norm of gradients (clip_norm) is 2 there, and 0 in rank 0",
       of_options([](auto& o) { o.clip_norm = 2; })},
      {"(gradient_accumulation_steps) is 2 there, and 1 in rank 0",
       of_options([](auto& o) { o.batches.gradient_accumulation_steps = 2; })},
      {"the global batch is 20 there, and 24 in rank 0",
       of_options([](auto& o) { o.batch_size = 10; })},
      {"the number of shards is 12 there, and ", of_options([](auto& o) { o.shards = 12; })},
      {"the last step is 7 there, and 6 in rank 0", of_options([](auto& o) { o.max_steps = 7; })},
      {"(uneven) is weight there, and drop in rank 0",
       of_options([](auto& o) { o.batches.uneven = Uneven::kWeight; })},
      {"the shares of the devices (tower_weights) is 1,1 there, and none in rank 0",
       of_options([](auto& o) {
         o.batches.tower_weights = {1, 1};
       })},
      {"the precision is bf16 there, and f32 in rank 0",
       of_options([](auto& o) { o.precision = Precision::kBf16; })},
      {"how gradients are combined is collective, bucket_mb 25, ", of_options([](auto& o) {
         o.aggregation.bucket_mb = 25;
         o.aggregation.choice.buckets = {25};
       })},
      {"how gradients are combined is ring, ",
       of_options([](auto& o) { o.aggregation.allreduce = "ring"; })},
      {"how gradients are combined is collective, bucket_mb 0, gradient_repacking 0, "
       "small_tensors_kb 4 there",
       of_options([](auto& o) { o.aggregation.small_tensors_kb = 4; })},
      {"the number of devices of each process is 2 there, and 1 in rank 0",
       of_options([](auto& o) { o.devices = cpus(2); })}};
  expect_refusals(all);
  expect_refusal("the weight decay is 0.1 there, and none in rank 0",
                 of_options([](auto& o) { o.optimizer = sgd(0.01); }),
                 of_options([](auto& o) { o.optimizer = sgd(0.01).with_weight_decay(0.1); }));
}

TEST(Disagreements, AboutDataAreNamed) {
  const Disagreement all[] = {
      {"the number of training samples is 144 there, and 120 in rank 0",
       [](Training& t) { t.data = smooth_data(6 * kGlobalBatch); }},
      {"the training data is ",
       [](Training& t) {
         std::vector<double> x(4 * kSamples), y(kSamples, 1);
         t.data = std::make_unique<TensorDataset>(
             std::vector<TensorDataset::Source>{{"x", Tensor({kSamples, 4}, x), DType::kF64, {4}},
                                                {"y", Tensor({kSamples, 1}, y), DType::kF64, {1}}},
             "zeros");
       }},
      {"the number of test samples is 31 there, and 30 in rank 0",
       [](Training& t) { t.test = smooth_data(31); }},
      {"the number of test samples is none there, and 30 in rank 0",
       [](Training& t) { t.test.reset(); }}};
  expect_refusals(all);
}

TEST(Disagreements, AboutTheModelAreNamedWithBothLines) {
  const auto line = [](const char* what) { return cat(what, ", built at "); };
  const Disagreement all[] = {
      {"variable 'fc0/W' is f64[4,6], built at ", of_model({.units = 6})},
      {"variable 'fc0/W' is f32[4,5], built at ", of_model({.dtype = DType::kF32})},
      {"rank 0 lacks variable 'more/W', which is f64[5,5], built at ", of_model({.deeper = true})},
      {"it lacks node 'Tanh', which is built at disagreements_test.cc:",
       of_model({.squares = true})},
      {"rank 0 lacks node 'Dropout', which is built at disagreements_test.cc:",
       of_model({.dropout = 0.5})}};
  expect_refusals(all);
  const std::string message = told(kNone, of_model({.units = 6}))[0];
  EXPECT_THAT(message, HasSubstr(line("there, and f64[4,5]")));
  EXPECT_EQ(message.find("disagreements_test.cc"), message.find(".cc:") - 18) << message;
  expect_refusal("variable 'right/W', which is f64[4,5], built at ",
                 of_model({.sides = {"left", "right"}}), of_model({.sides = {"right", "left"}}));
  expect_refusal(": Dropout{0.5}('Tanh') -> ", of_model({.dropout = 0.25}),
                 of_model({.dropout = 0.5}));
  expect_refusal("node 'bn/BatchNormTrain', which is built at ", of_model({.normalised = true}),
                 of_model({.normalised = true, .synchronised = true}));
}

TEST(Disagreements, AboutFirstValuesAreNamed) {
  expect_refusal("variable 'fc0/W' is f64[4,5], built at ", kNone, [](Training& t) {
    t.prepare = [](Trainer& trainer) {
      const Variable w = trainer.graph().variables(kTrainableVariables)[0];
      Tensor value = trainer.session().read(w);
      value.mutable_data<double>()[0] += 1;
      trainer.session().write(w, value);
    };
  });
}

TEST(Disagreements, AboutWhereTheyGoOnAreNamed) {
  expect_refusal("the step to begin with is 4 there, and 1 in rank 0", kNone, [](Training& t) {
    t.prepare = [](Trainer& trainer) {
      trainer.progress().resume({.steps = 3, .samples = 3 * kGlobalBatch});
    };
  });
}

// A trainer that sends two more messages, in either order.
Change sending(bool reversed) {
  return [reversed](Training& t) {
    t.kind.combine = [reversed, combine = t.kind.combine](const TrainerOptions& options,
                                                          const GradientTable& gradients,
                                                          const ReduceOptions& how) {
      Graph& graph = gradients.graph();
      const DeviceScope on(graph, options.devices[0]);
      const std::string names[] = {"one", "two"};
      std::vector<Node*> nodes;
      for (const int i : {0, 1}) {
        const Output row = constant(graph, Tensor({1}, std::vector<double>{1}));
        nodes.push_back(
            &gather_over_processes(row, graph.process(), At(names[reversed ? 1 - i : i])).node());
      }
      const ControlDependencies after(graph, nodes);
      return combine(options, gradients, how);
    };
  };
}

TEST(Disagreements, AboutTheOrderOfMessagesAreNamed) {
  expect_refusal("message 'two', which is AllGather of f64[2], built at ", sending(false),
                 sending(true));
  expect_refusal("message 'one", kNone, sending(false));
}

// One process has this error, and the other hears of it when the first has gone.
TEST(Disagreements, AboutTheTrainerEndAll) {
  for (const char* const kind : {"simple", "parameter_server"}) {
    const std::vector<std::string> all =
        told(kNone, [&](Training& t) { t.kind = find_trainer(kind); });
    EXPECT_THAT(all[0], HasSubstr("rank 1"));
    EXPECT_THAT(all[1], HasSubstr(cat("trainer=", kind, " trains in one process")));
  }
  const std::vector<std::string> same = told([](Training& t) { t.kind = find_trainer("simple"); },
                                             [](Training& t) { t.kind = find_trainer("simple"); });
  EXPECT_THAT(same, testing::Each(HasSubstr("trains in one process")));
  expect_refusal("the trainer is mine there, and replicated in rank 0", kNone,
                 [](Training& t) { t.kind.name = "mine"; });
}

}  // namespace disagreements_test
}  // namespace belfry
