// Trainings in which one sample makes a loss or a gradient that is not finite.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/sqrt.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry::spiced {

using State = std::map<std::string, Tensor>;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
// A sample of this spice makes a gradient that is not finite of a loss that is.
inline constexpr float kSteep = 2;

// Samples "x" [4], "y" [1] and "spice", which is 1 except for sample 21.
inline std::unique_ptr<Dataset> spiced_data(float spice_of_21) {
  constexpr std::int64_t kSamples = 32;
  std::vector<float> x, y, spice(kSamples, 1);
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const auto n = static_cast<float>(i);
    for (int j = 0; j < 4; ++j) x.push_back(std::sin(7 * n + 3 * static_cast<float>(j) + 1));
    y.push_back(std::cos(n));
  }
  spice[21] = spice_of_21;
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({kSamples, 4}, x), DType::kF32, {4}},
                                         {"y", Tensor({kSamples, 1}, y), DType::kF32, {1}},
                                         {"spice", Tensor({kSamples, 1}, spice), DType::kF32, {1}}},
      "a function with spices");
}

// The moving averages of the batch norm may be spoilt, too. The root of 0 has an infinite gradient.
inline Output spiced_model(Tower& tower, Output x, Output y, Output spice) {
  const Variable steep = variable(tower.graph(), "steep", {}, {.initializer = init::ones()});
  Output hidden = batch_norm(tower, "bn", dense(tower, "fc0", x * spice, {.units = 5}));
  hidden = dense(tower, "fc1", tanh(hidden), {.units = 1});
  return reduce_mean(square(hidden - y)) + reduce_mean(sqrt(square(steep * (spice - kSteep))));
}

inline TrainerOptions options_of(OnNonfinite policy, int towers = 1,
                                 Precision precision = Precision::kF32) {
  return {.model = spiced_model,
          .optimizer = adam(0.01),
          .devices = cpus(towers),
          .batch_size = 4 / towers,
          .precision = precision,
          .loss_scale = {.initial = 1, .growth_steps = 1000},
          .on_nonfinite = policy,
          .warn_of_loss = false,
          .session = {.threads = 2}};
}

inline State state_of(Trainer& trainer) {
  State state;
  for (auto& [name, value] : read_state(trainer.session(), trainer.graph()))
    if (!name.starts_with("loss_scale")) state.emplace(name, std::move(value));
  return state;
}

// The state before each step, and the steps that left it as it was.
class Steps final : public Callback {
 public:
  void before_step(Trainer& trainer, const StepInfo&) override {
    before.push_back(state_of(trainer));
    runs.push_back(trainer.session().step());
  }
  void after_step(Trainer& trainer, const StepInfo& info) override {
    if (state_of(trainer) == before.back()) unchanged.push_back(info.step);
  }
  std::vector<State> before;
  std::vector<std::int64_t> unchanged;
  std::vector<std::uint64_t> runs;  // keys of random numbers
};

inline std::unique_ptr<Trainer> make(TrainerOptions options, const Dataset& data,
                                     const std::string& kind = "") {
  const bool one = options.devices.size() == 1 && !options.session.processes;
  return std::make_unique<Trainer>(find_trainer(!kind.empty() ? kind
                                                : one         ? "simple"
                                                              : "replicated"),
                                   std::move(options), data);
}

}  // namespace belfry::spiced
