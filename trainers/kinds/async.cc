#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// Divides each tower's gradients by the number of towers, on the tower's device.
GradientRows scaled(const GradientTable& gradients) {
  const int towers = gradients.towers();
  GradientRows rows;
  for (int t = 0; t < towers; ++t) {
    std::vector<Gradient>& row = rows.emplace_back(gradients.row(t));
    if (towers == 1) break;
    const NameScope names(gradients.graph(), "ScaleGradients");
    const DeviceScope on(gradients.graph(), gradients.device(t));
    for (Gradient& gradient : row) gradient.value = gradient.value / towers;
  }
  return rows;
}

std::vector<Node*> updates(const TrainerOptions& options, const GradientTable& gradients,
                           UpdateOrder order, const UpdateOptions& how) {
  require_option<TrainerMistake>(
      gradients.towers() == std::ssize(options.devices), "trainer",
      "=async cannot train layers that are synchronised over towers: each tower updates by "
      "its own loss; leave out BatchNormLayer::synchronised and weighted means, or use another "
      "trainer, such as replicated (",
      the_option("trainer"), ")");
  const GradientRows rows = scaled(gradients);
  const DeviceScope on(gradients.graph(), gradients.device(0));
  return options.optimizer.apply_each(rows, order, {}, how.slots, how.unscaling);
}

UpdateNodes update_in_order(const TrainerOptions& options, const GradientTable& gradients,
                            const UpdateOptions& how) {
  const auto made = updates(options, gradients, UpdateOrder::kOneByOne, how);
  return {.update = &group(gradients.graph(), made, "train_op")};
}

std::vector<Node*> update_free(const TrainerOptions& options, const GradientTable& gradients) {
  return updates(options, gradients, UpdateOrder::kFree, {});
}

const TrainerRegistration kAsync({
    .name = "async",
    .summary = "variables spread over the devices, updated by each tower on its own",
    .variables = VariablePolicy::kSpread,
    .update = update_in_order,
    .update_free = update_free,
});

}  // namespace
}  // namespace belfry
