// What a training step moves through the memory of a GPU, counted from its plan: no GPU is needed.
// Prints the tables that docs/performance.md sums up.
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "belfry/framework/graph/op.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/launch_work.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"

namespace belfry {
namespace moved_bytes_test {

struct Moved {
  int launches = 0;
  std::int64_t bytes = 0;
};

// By op, of the launches on GPUs: each reads its inputs and writes its outputs once.
std::map<std::string, Moved> moved_by(const Plan& plan) {
  std::map<std::string, Moved> moved;
  for (const Launch& launch : plan.launches) {
    if (plan.strands[launch.strand].gpu < 0) continue;
    Moved& of = moved[plan.node(launch.node).op->name];
    ++of.launches;
    of.bytes += work_of(plan, launch.node, 0).bytes;
  }
  return moved;
}

using Step = std::map<std::string, Moved>;

// A step in bf16 on one GPU.
Step step_of(const ModelSpec& spec, int batch) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto data = synthetic_data(spec.fields, spec.classes, batch, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .batch_size = batch,
                         .precision = Precision::kBf16,
                         .session = {.deterministic = true, .threads = 2}};
  options.devices = {DeviceSpec::local("GPU", 0)};
  const BuiltTraining built(find_trainer("replicated"), std::move(options), *data, nullptr);
  const std::vector<PlanOfStep> plans = built.plans_of_step();
  EXPECT_EQ(plans.size(), 1u);
  return moved_by(*plans.at(0).plan);
}

// The same of a large batch, for which a host may lack memory: a sample more adds always as much.
Step step_of_large(const ModelSpec& spec, int batch) {
  const Step one = step_of(spec, 1), two = step_of(spec, 2);
  Step large;
  for (const auto& [op, moved] : two) {
    const Moved& first = one.at(op);
    EXPECT_EQ(moved.launches, first.launches) << op;
    large[op] = {moved.launches, first.bytes + (moved.bytes - first.bytes) * (batch - 1)};
  }
  EXPECT_EQ(one.size(), two.size());
  return large;
}

void print(const char* title, const Moved& sum, const Step& step) {
  std::printf("%s: %d launches, %.2f GB\n", title, sum.launches,
              static_cast<double>(sum.bytes) * 1e-9);
  std::multimap<std::int64_t, std::string, std::greater<>> order;
  for (const auto& [op, moved] : step) order.emplace(moved.bytes, op);
  for (const auto& [bytes, op] : order)
    std::printf("| `%s` | %d | %.2f |\n", op.c_str(), step.at(op).launches,
                static_cast<double>(bytes) * 1e-9);
}

struct Limit {
  const char *title, *model;
  std::optional<models::GptSize> gpt;
  int batch, launches;
  std::int64_t bytes;
};

// Whoever makes a step move less lowers these figures, and those of docs/performance.md.
TEST(MovedBytes, OfStepsDoNotGrow) {
  const Limit limits[] = {
      {"ResNet-20, batch 256", "resnet20", {}, 256, 186, 1464708728},
      {"GPT of two layers, batch 64", "gpt", models::GptSize{.layers = 2}, 64, 118, 3984446768},
  };
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.title);
    const Step step = step_of_large(find_model(limit.model, 0, {.gpt = limit.gpt}), limit.batch);
    Moved sum;
    for (const auto& [op, moved] : step) {
      sum.launches += moved.launches;
      sum.bytes += moved.bytes;
    }
    print(limit.title, sum, step);
    EXPECT_EQ(sum.launches, limit.launches);
    EXPECT_EQ(sum.bytes, limit.bytes);
  }
}

}  // namespace moved_bytes_test
}  // namespace belfry
