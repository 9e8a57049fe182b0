// Models of which a part is frozen, by groups or by layers.
#include <algorithm>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace frozen_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kGlobalBatch = 16, kSteps = 4;

struct Trainable {
  bool trunk = true, middle = true;
};

// A trunk and a middle with batch norm, and a head.
Output layered_model(Tower& tower, Output x, Output y, Trainable trainable) {
  const auto layer = [&](const char* name, Output from, bool trained) {
    const Output dense =
        belfry::dense(tower, cat(name, "_fc"), from, {.units = 6, .trainable = trained});
    return tanh(batch_norm(tower, cat(name, "_bn"), dense, {.trainable = trained}));
  };
  const Output middle = layer("middle", layer("trunk", x, trainable.trunk), trainable.middle);
  return reduce_mean(square(dense(tower, "head", middle, {.units = 1}) - y));
}

ModelFunction model_with(Trainable trainable) {
  return [trainable](Tower& tower, Output x, Output y) {
    return layered_model(tower, x, y, trainable);
  };
}

TrainerOptions options_of(int devices, std::string_view groups, Trainable trainable = {}) {
  const Optimizer optimizer = adam(0.01);
  return {.model = model_with(trainable),
          .optimizer = groups.empty() ? optimizer : optimizer.with_groups(parse_groups(groups)),
          .devices = cpus(devices),
          .batch_size = kGlobalBatch / devices,
          .shards = 8,
          .epochs = 4,
          .max_steps = kSteps,
          .session = {.threads = 1}};
}

constexpr char kFrozenTrunk[] = "trunk*:freeze";
constexpr Trainable kHeadOnly{.trunk = false, .middle = false};

class Training {
 public:
  explicit Training(TrainerOptions options, std::string_view kind = "replicated")
      : trainer(find_trainer(kind), std::move(options), *data_) {}

  std::string trained() {
    trainer.train();
    EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
    return hash();
  }
  std::string hash() { return params_hash(trainer.session(), trainer.graph()); }
  Tensor value(std::string_view name) {
    return trainer.session().read(trainer.graph().stored_variable(name));
  }
  // The names of the nodes that its training steps run.
  std::vector<std::string> nodes() const {
    std::vector<std::string> names;
    for (const std::shared_ptr<const Plan>& plan : trainer.built().plans())
      for (const Launch& launch : plan->launches)
        names.emplace_back(plan->node(launch.node).node->name());
    return names;
  }

 private:
  std::unique_ptr<Dataset> data_ = smooth_data(5 * kGlobalBatch);

 public:
  Trainer trainer;
};

TEST(Frozen, PartsGiveOneHashOnOneToFourDevicesAndInTwoProcesses) {
  // A batch norm that is trained depends on the batch of its tower, so all are frozen.
  for (const char* groups :
       {"trunk*:freeze;middle*:freeze", "*_bn:freeze", "middle*:freeze;*_bn:freeze"}) {
    const std::string one = Training(options_of(1, groups)).trained();
    for (const int devices : {2, 4})
      EXPECT_EQ(Training(options_of(devices, groups)).trained(), one) << groups << devices;
    std::mutex mutex;
    test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
      for (const int zero_stage : {0, 1}) {
        TrainerOptions options = options_of(1, groups);
        options.batch_size = kGlobalBatch / 2;
        options.session.processes = processes;
        options.aggregation.zero_stage = zero_stage;
        const std::string hash = Training(std::move(options)).trained();
        const std::lock_guard lock(mutex);
        EXPECT_EQ(hash, one) << groups << zero_stage;
      }
    });
  }
}

TEST(Frozen, LayersAndGroupsEndInOneState) {
  const std::string by_layer = Training(options_of(2, "", kHeadOnly)).trained();
  EXPECT_EQ(Training(options_of(2, "trunk*:freeze;middle*:freeze")).trained(), by_layer);
  EXPECT_NE(Training(options_of(2, "")).trained(), by_layer);
}

TEST(Frozen, VariablesKeepTheirValuesInEveryTrainer) {
  for (const std::string& kind : library_trainers()) {
    SCOPED_TRACE(kind);
    Training training(options_of(kind == "simple" ? 1 : 2, kFrozenTrunk), kind);
    const char* const frozen[] = {"trunk_fc/W",    "trunk_fc/b",        "trunk_bn/gamma",
                                  "trunk_bn/beta", "trunk_bn/mean/EMA", "trunk_bn/variance/EMA"};
    std::vector<Tensor> before;
    for (const char* name : frozen) before.push_back(training.value(name));
    const Tensor others[] = {training.value("middle_fc/W"), training.value("middle_bn/mean/EMA")};
    training.trainer.train();
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(training.value(frozen[i]), before[i]) << frozen[i];
    EXPECT_NE(training.value("middle_fc/W"), others[0]);
    EXPECT_NE(training.value("middle_bn/mean/EMA"), others[1]);
  }
}

// The averages move by hand, so that the layer's result depends on them.
TEST(Frozen, BatchNormUsesItsMovingAverages) {
  const auto loss_with = [](double mean) {
    Training training(options_of(1, "", kHeadOnly));
    Session& session = training.trainer.session();
    const Variable average = training.trainer.graph().stored_variable("trunk_bn/mean/EMA");
    Tensor value = session.read(average);
    for (double& x : value.mutable_data<double>()) x = mean;
    session.write(average, value);
    training.trainer.train();
    return training.trainer.metric("loss");
  };
  EXPECT_NE(loss_with(0), loss_with(3));
}

bool is_about(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

TEST(Frozen, VariablesHaveNoSlotNoGradientAndNoMessage) {
  Training training(options_of(2, "trunk*:freeze;middle*:freeze"));
  for (const Variable v : training.trainer.graph().variables()) {
    EXPECT_FALSE(is_about(std::string(v.name()), "trunk") &&
                 is_about(std::string(v.name()), "Adam"))
        << v.name();
    EXPECT_EQ(v.trainable(),
              is_about(std::string(v.name()), "head") && !is_about(std::string(v.name()), "Adam"))
        << v.name();
  }
  // Not one node in the plan differentiates the trunk, updates it or combines gradients of it.
  for (const std::string& name : training.nodes())
    for (const char* part : {"trunk", "middle"})
      EXPECT_FALSE(is_about(name, part) &&
                   (is_about(name, "grad") || is_about(name, "update") ||
                    is_about(name, "llreduce") || is_about(name, "llReduce")))
          << name;
  const std::vector<std::string> all = Training(options_of(2, "")).nodes();
  EXPECT_TRUE(std::ranges::any_of(all, [](const std::string& name) {
    return is_about(name, "trunk_fc") && is_about(name, "grad");
  })) << "the names of gradients have changed";
}

TEST(Frozen, MiddlePassesGradientsOnToABottomThatIsTrained) {
  Training training(options_of(2, "middle*:freeze"));
  const Tensor bottom = training.value("trunk_fc/W"), middle = training.value("middle_fc/W");
  training.trainer.train();
  EXPECT_NE(training.value("trunk_fc/W"), bottom);
  EXPECT_EQ(training.value("middle_fc/W"), middle);
  for (const std::string& name : training.nodes()) {
    EXPECT_FALSE(is_about(name, "middle_bn/BatchNormInference_grad/BatchNormInferenceGrad"))
        << name << " needs the input of the layer, which is then kept";
    EXPECT_FALSE(is_about(name, "update_middle")) << name;
  }
}

// Activations have twice the elements of weights.
std::int64_t planned_bytes(MemoryKind kind, Trainable trainable) {
  TrainerOptions options = options_of(1, "");
  options.batch_size = 40;
  options.shards = 1;
  options.model = [trainable](Tower& tower, Output x, Output y) {
    const auto layer = [&](const char* name, Output from, bool trained) {
      return tanh(dense(tower, name, from, {.units = 20, .trainable = trained}));
    };
    Output h = x;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) h = layer(name, h, trainable.trunk);
    return reduce_mean(square(dense(tower, "head", h, {.units = 1}) - y));
  };
  Training training(std::move(options));
  std::int64_t bytes = 0;
  for (const MemoryReport::Device& device : training.trainer.session().memory_report().devices)
    bytes += device.bytes[kind];
  return bytes;
}

TEST(Frozen, TrunkKeepsNoActivationsGradientsAndSlots) {
  constexpr Trainable kFrozen{.trunk = false};
  EXPECT_EQ(planned_bytes(MemoryKind::kWeight, kFrozen), planned_bytes(MemoryKind::kWeight, {}));
  for (const MemoryKind kind :
       {MemoryKind::kActivation, MemoryKind::kGradient, MemoryKind::kOptimizer})
    EXPECT_LE(2 * planned_bytes(kind, kFrozen), planned_bytes(kind, {})) << name_of(kind);
}

// The norm is that of all groups: a group of its own changes no bit of a clipped step.
TEST(Frozen, GroupsAreClippedTogether) {
  const auto clipped = [](const char* groups, double clip_norm) {
    TrainerOptions options = options_of(2, groups);
    options.optimizer = options.optimizer.with_rate(0.01);
    options.clip_norm = clip_norm;
    return Training(std::move(options)).trained();
  };
  EXPECT_EQ(clipped("head:weight_decay=0", 0.01), clipped("", 0.01));
  EXPECT_NE(clipped("head:rate=0.5", 0.01), clipped("", 0.01));
}

TEST(Frozen, PartsTrainInEveryPrecisionWithAveragesAndSeveralBatchesPerStep) {
  const auto model = [](Tower& tower, Output x, Output y) {
    return layered_model(tower, cast(x, DType::kF32), cast(y, DType::kF32), {});
  };
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
    TrainerOptions options = options_of(2, "trunk*:freeze;middle*:freeze");
    options.model = model;
    options.precision = precision;
    options.optimizer = options.optimizer.with_averages({.decay = 0.5});
    if (precision != Precision::kF16) options.batches.gradient_accumulation_steps = 2;
    Training training(std::move(options));
    const Tensor frozen = training.value("trunk_fc/W"), head = training.value("head/W");
    training.trainer.train();
    EXPECT_EQ(training.value("trunk_fc/W"), frozen);
    EXPECT_NE(training.value("head/W"), head);
    EXPECT_FALSE(average_of(training.trainer.graph().stored_variable("trunk_fc/W")));
    EXPECT_TRUE(average_of(training.trainer.graph().stored_variable("head/W")));
  }
}

std::string refusal_of(std::string_view groups, Trainable trainable = {}) {
  try {
    Training training(options_of(1, groups, trainable));
  } catch (const Error& error) {
    return error.what();
  }
  return "(built)";
}

TEST(Frozen, GroupsThatFitNothingAreRefusedWithNearNames) {
  EXPECT_THAT(refusal_of("trnk*:freeze"),
              AllOf(HasSubstr("group=trnk*:freeze fits no variable of the model; near are "),
                    HasSubstr("trunk_fc/W")));
  EXPECT_THAT(refusal_of("trunk*:rate=2", kHeadOnly), HasSubstr("or not trained"));
  EXPECT_THAT(refusal_of("trunk_bn/mean:freeze;head:rate=2"),
              HasSubstr("trunk_bn/mean:freeze has no effect"));
  EXPECT_THAT(refusal_of("trunk*:freeze", kHeadOnly), HasSubstr("or not trained anyway"));
  EXPECT_THAT(refusal_of("*:freeze"), HasSubstr("*:freeze leaves nothing to train"));
}

}  // namespace frozen_test
}  // namespace belfry
