#include "belfry/trainers/core/divergence.h"

#include <cmath>
#include <utility>

#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_record.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// With the line of the variable that a slot of an optimizer belongs to, which is in the model.
TensorText text_of(Variable variable) {
  TensorText text = variable.describe();
  if (variable.trainable()) return text;
  const std::string name(variable.logical_name());
  const std::string owner = name.substr(0, name.rfind('/'));
  if (const Variable of = variable.node().graph().stored_variable(owner); of && owner != name)
    text.site = of.node().origin().site;
  return text;
}

// The variables with values that are not finite.
struct BadVariables {
  std::string first;
  int count = 0, all = 0;

  void look_at(Session& session, Variable variable, bool may_be_infinite) {
    const Tensor value = session.read(variable);
    const std::span<const std::byte> bytes(value.raw(), value.bytes());
    const auto bad =
        may_be_infinite ? find_nan(value.dtype(), bytes) : find_not_finite(value.dtype(), bytes);
    ++all;
    if (bad && count++ == 0) first = cat(text_of(variable), " has ", *bad);
  }
};

constexpr char kLookAtOps[] = "look at logarithms, divisions, square roots and exponentials of ";

// The first sample with a value that is not finite; "" for none that is known.
const std::string& bad_input(const Suspects& suspects, const Divergence& found) {
  const bool of_test = !found.loss_since && found.variable.empty();
  return of_test ? suspects.test_input : suspects.input;
}

// What grew before the loss was not finite; "" if nothing did.
std::string growth_of(const DivergenceWatch& watch) {
  const std::string& weight = watch.suspects().large_weight;
  return weight.empty() ? watch.losses().growth() : weight;
}

// Advice goes by what was seen. A learning rate is to blame if values were finite, and grew.
std::string advice_by_losses(const DivergenceWatch& watch, bool runs_free,
                             const Divergence& found) {
  const Suspects& suspects = watch.suspects();
  const bool of_test = !found.loss_since && found.variable.empty();
  if (!found.update.empty())
    return cat("a smaller learning rate may help (", the_option("learning_rate"),
               "), or, for slots that keep squares of gradients, a smaller limit of these (",
               the_option("clip_norm"), ")");
  if (found.loss_since == 1 && !runs_free)
    return cat(
        "no update had been made: look at the data, at the first values of variables, and "
        "at logarithms, divisions and square roots of the model");
  if (!suspects.first_update.empty())
    return cat(suspects.first_update, ": ", kLookAtOps,
               "the model, whose gradients may be infinite where their values are finite");
  const std::string growth = growth_of(watch);
  if (!growth.empty())
    return cat(growth, ": a smaller learning rate may help (", the_option("learning_rate"),
               "), or a limit of gradients (", the_option("clip_norm"), ")");
  if (of_test) return cat(kLookAtOps, "what the test computes");
  if (!found.gradients.empty() && !found.bad)
    return cat("make the loss smaller, or limit gradients (", the_option("clip_norm"), ")");
  return cat("the loss had not grown before: ", kLookAtOps,
             "the model, whose gradients may be infinite where their values are finite");
}

std::string advice_for(const DivergenceWatch& watch, const BuiltTraining& built,
                       const Divergence& found) {
  if (const std::string& input = bad_input(watch.suspects(), found); !input.empty())
    return cat(input, "; fix this sample, or leave it out");
  if (found.bad && growth_of(watch).empty()) return found.bad->advice();
  // A tower that runs free may make its first step after another has updated the variables.
  const bool runs_free = built.kind().runs_free(built.options());
  const std::string advice = advice_by_losses(watch, runs_free, found);
  if (built.options().precision != Precision::kF16) return advice;
  return cat(advice, "; f16 has no numbers above 65504, and bf16 has the range of f32 (",
             the_option("precision"), ")");
}

}  // namespace

std::string Divergence::str() const {
  const std::string which = loss_name.empty() ? "the loss" : cat("the loss '", loss_name, "'");
  std::string text;
  if (!update.empty())
    text = cat("the update of step ", *loss_since, " by ", update, " overflowed, though ", which,
               " is ", significant(loss), " and its gradients are finite");
  else if (loss_since && std::isfinite(loss))
    text = cat("gradients of step ", *loss_since, " ", gradients, ", though ", which, " is ",
               significant(loss));
  else if (loss_since && *loss_since == steps)
    text = cat(which, " of step ", steps, " is ", significant(loss));
  else if (loss_since)
    text = cat(which, " is ", significant(loss), ", and not finite since step ", *loss_since);
  if (bad) text += cat(": ", bad->text());
  if (!changes.empty() && update.empty()) text += cat("; this step changed ", changes);
  if (!variable.empty()) text += cat(text.empty() ? "" : "; ", variable);
  if (text.empty() && test_loss) text = cat("the test loss is ", significant(*test_loss));
  return text;
}

Diverged::Diverged(Divergence found)
    : Error(ErrorFields{
          .kind = ErrorKind::kDiverged,
          .device = found.bad ? found.bad->device : "",
          .op = found.bad ? found.bad->op : "",
          .where = found.bad ? found.bad->where : "",
          .names_where = true,
          .variable = found.bad && found.variable.empty() ? found.bad->variable : found.variable,
          .step = found.loss_since.value_or(0),
          .why = cat("training diverged: ", found),
          .advice = found.advice}),
      found_(std::move(found)) {}

// Trainable variables first: slots that are not finite follow from them, or from their gradients.
std::string bad_variable(BuiltTraining& built) {
  const VariableRoles roles(built.graph());
  BadVariables trainable, others;
  for (const Variable variable : original_variables(built.graph()))
    if (variable.trainable())
      trainable.look_at(built.session(), variable, false);
    else
      others.look_at(built.session(), variable, may_be_infinite(roles.of(variable.node()), false));
  if (trainable.count == 0) return others.first;
  if (trainable.count == 1) return trainable.first;
  if (trainable.count == trainable.all)
    return cat("all ", trainable.all, " trainable variables have values that are not finite");
  return cat(trainable.first, ", as have ", trainable.count - 1, " others of ", trainable.all,
             " trainable variables");
}

Divergence find_divergence(BuiltTraining& built, const TrainingRecord& record) {
  Divergence found{.loss = record.metric("loss"),
                   .loss_since = record.watch().losses().not_finite_since(),
                   .variable = bad_variable(built),
                   .steps = record.watch().losses().steps()};
  if (record.has_metric("validation_loss"))
    if (const double test = record.metric("validation_loss"); !std::isfinite(test))
      found.test_loss = test;
  // Steps that were skipped are no divergence unless the variables are of no use.
  if (!found.loss_since && found.test_loss && record.watch().suspects().test_input.empty())
    found.loss_since = record.watch().skipped_since();
  if (found.loss_since) {
    found.bad = record.watch().bad_value();
    if (found.bad && found.bad->step < *found.loss_since) found.bad.reset();
    found.loss_name = record.watch().bad_loss();
    found.changes = record.watch().changes();
    if (record.watch().overflowed()) {
      std::vector<std::string> names;
      for (const Optimizer& optimizer : built.options().optimizers())
        if (std::ranges::find(names, optimizer.name()) == names.end())
          names.push_back(optimizer.name());
      found.update = join(names, " and ");
    }
  }
  if (!found.loss_name.empty()) found.loss = record.metric(found.loss_name);
  if (found.loss_since && std::isfinite(found.loss) && found.update.empty())
    found.gradients = refused_gradients(found.bad, built.options());
  if (found) found.advice = advice_for(record.watch(), built, found);
  return found;
}

}  // namespace belfry
