// The time to build a training (graph, gradients and plan) grows in proportion to the model. Four
// times the ops take four times as long, and sixteen times if a part is quadratic.
#include <algorithm>
#include <ctime>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {
namespace linear_building_test {

using Model = std::function<Output(Tower&, Output, Output)>;

// Seconds of this thread's CPU time, which others do not lengthen much.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_to_build(const Model& model, int devices, const char* strategy) {
  const auto data = smooth_data(16);
  TrainerOptions options{.model = model, .optimizer = sgd(0.1), .batch_size = 16 / devices};
  options.devices = cpus(devices);
  options.aggregation.allreduce = strategy;
  const double begin = cpu_seconds();
  const Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"), std::move(options),
                        *data);
  return cpu_seconds() - begin;
}

void expect_linear(const std::function<Model(int)>& model, int size, int devices = 1,
                   const char* strategy = "collective") {
  if (kSanitized) GTEST_SKIP() << "sanitizers take time of their own";
  // The least of several builds, in turns, because caches are shared with others.
  double few = 1e9, many = 1e9;
  for (int i = 0; i < 3 || (i < 10 && many >= 8 * few); ++i) {
    few = std::min(few, seconds_to_build(model(size), devices, strategy));
    many = std::min(many, seconds_to_build(model(4 * size), devices, strategy));
  }
  EXPECT_LT(many, 8 * few) << few << " s for " << size << ", " << many << " s for four times that";
}

// `size` ops one after the other: aliases, which all lie in one tensor.
Model aliases(int size) {
  return [size](Tower& tower, Output x, Output y) {
    Output h = dense(tower, "fc", x, {.units = 1});
    for (int i = 0; i < size; ++i) h = identity(h);
    return reduce_mean(square(h - y));
  };
}

// Ops whose results the backward pass reads.
Model functions(int size) {
  return [size](Tower& tower, Output x, Output y) {
    Output h = dense(tower, "fc", x, {.units = 1});
    for (int i = 0; i < size; ++i) h = tanh(h);
    return reduce_mean(square(h - y));
  };
}

// `size` layers side by side, each with a loss.
Model layers(int size) {
  return [size](Tower& tower, Output x, Output y) {
    std::vector<Output> losses;
    for (int i = 0; i < size; ++i)
      losses.push_back(reduce_mean(square(tanh(dense(tower, cat("fc", i), x, {.units = 1})) - y)));
    return add_n(losses);
  };
}

TEST(LinearBuilding, OfManyAliasesInARow) { expect_linear(aliases, 2500); }
TEST(LinearBuilding, OfManyOpsInARow) { expect_linear(functions, 2500); }
TEST(LinearBuilding, OfManyLayersSideBySideLong) { expect_linear(layers, 300, 4); }
TEST(LinearBuilding, OfManyLayersWithManyMessagesLong) { expect_linear(layers, 300, 4, "ring"); }

}  // namespace linear_building_test
}  // namespace belfry
