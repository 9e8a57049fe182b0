#include "belfry/trainers/core/loss_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/trainers/core/trainer_options.h"

namespace belfry {
namespace {

constexpr const char* kScale = "loss_scale";
constexpr const char* kGoodSteps = "loss_scale/good_steps";
constexpr const char* kSkippedSteps = "loss_scale/skipped_steps";

Variable make_state(Graph& graph, const char* name, DType dtype, double initial) {
  return graph.create_variable(
      {name,
       {},
       {.dtype = dtype,
        .initializer = init::constant(initial),
        .trainable = false,
        .collections = {std::string(kGlobalVariables), std::string(kStateVariables)}}},
      {});
}

// Whether all flags are true: 1 / 0 is not finite.
Output all_true(std::span<const Output> flags) {
  std::vector<Output> row;
  for (const Output& flag : flags) row.push_back(reshape(1.0 / cast(flag, DType::kF32), {1}));
  return all_finite({{concat(row, 0)}});
}

// Whether the flags of all processes are true. A process may have none.
Output true_in_all_processes(Graph& graph, const DeviceSpec& device,
                             std::span<const Output> flags) {
  const HostScope on(graph, device);  // messages are memory of hosts
  const Output own =
      flags.empty() ? constant(graph, 1.0, DType::kF32) : cast(all_true(flags), DType::kF32);
  return all_finite({{gather_over_processes(reshape(1.0 / own, {1}), graph.process())}});
}

// Adds a check per device and type. It looks at the inputs of sums, not at their results: updates
// alone are to read those.
void add_checks(std::span<const Output> values, const GradientRange& range,
                std::vector<Output>& finite) {
  std::map<std::pair<DeviceSpec, DType>, std::vector<Output>> alike;
  for (const Output& value : values) alike[{value.device(), value.dtype()}].push_back(value);
  for (const auto& [of, some] : alike) {
    const DeviceScope on(some[0].graph(), of.first);
    finite.push_back(all_finite(some, {.limit = range.largest(of.second)}));
  }
}

}  // namespace

// The same for any number of towers up to kTowers, so that these do not decide which steps pass.
double GradientRange::largest(DType dtype) const {
  constexpr double kTowers = 1024;
  const double most =
      dtype == DType::kF64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  return (squares ? std::sqrt(most) : most) / (2 * std::max(sum, kTowers));
}

LossScale make_loss_scale(Graph& graph, const TrainerOptions& options) {
  if (options.precision != Precision::kF16) return {};
  const auto& [initial, growth_steps] = options.loss_scale;
  int exponent = 0;
  require(std::frexp(initial, &exponent) == 0.5 && std::abs(exponent - 1) <= 126,
          "the loss scale must be a power of two from 2^-126 to 2^126, not ", initial);
  require(growth_steps >= 1, "the loss scale grows after 1 or more good steps, not ", growth_steps);
  const DeviceScope on(graph, options.devices[0]);
  const Variable scale = make_state(graph, kScale, DType::kF32, initial);
  return {scale, make_state(graph, kGoodSteps, DType::kI64, 0)};
}

std::vector<std::string> loss_scale_names() { return {kScale, kGoodSteps, kSkippedSteps}; }

std::vector<Output> initial_gradients(const LossScale& scale, Output loss, double without_scale) {
  const SourceLine site = loss.node().origin().site;
  if (scale) return {cast(scale.scale, loss.dtype(), site)};
  if (without_scale == 1) return {};
  ColocateWith beside(loss);
  return {fill_like(loss, without_scale, At("initial_gradient", site))};
}

std::string optimizer_without_factor(const TrainerOptions& options) {
  for (const Optimizer& optimizer : options.optimizers())
    if (!optimizer.takes_loss_scale()) return optimizer.name();
  return "";
}

bool guards_steps(const TrainerOptions& options) {
  return options.on_nonfinite != OnNonfinite::kContinue &&
         optimizer_without_factor(options).empty();
}

// The check of steps in all precisions: without a loss scale, `scale` is 1.
Unscaling unscaling_of(Output scale, const CheckedValues& values) {
  Graph& graph = scale.graph();
  std::vector<Output> finite;
  add_checks(values.gradients, values.range, finite);
  add_checks(values.losses, {.sum = values.range.sum, .squares = false}, finite);
  const ColocateWith with(scale);
  if (graph.process().size > 1) finite = {true_in_all_processes(graph, scale.device(), finite)};
  return unscale(scale, finite);
}

}  // namespace belfry
