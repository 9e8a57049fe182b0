#include "belfry/trainers/core/divergence.h"

#include <cmath>

#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {

std::string Divergence::str() const {
  std::string text;
  if (loss_since)
    text = cat("the loss is ", significant(loss), ", and not finite since step ", *loss_since);
  if (!variable.empty()) text += cat(text.empty() ? "" : "; ", variable);
  if (text.empty() && test_loss) text = cat("the test loss is ", significant(*test_loss));
  return text;
}

Divergence find_divergence(Trainer& trainer) {
  Divergence found{.loss = trainer.metric("loss"), .loss_since = trainer.not_finite_since()};
  if (trainer.has_metric("validation_loss"))
    if (const double test = trainer.metric("validation_loss"); !std::isfinite(test))
      found.test_loss = test;
  for (const Variable variable : originals_of(trainer.graph().variables(kTrainableVariables))) {
    const Tensor value = trainer.session().read(variable);
    const auto bad = find_not_finite(value.dtype(), {value.raw(), value.bytes()});
    if (!bad) continue;
    found.variable = cat(variable.describe(), " has ", *bad);
    break;
  }
  return found;
}

}  // namespace belfry
