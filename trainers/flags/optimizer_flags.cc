#include "belfry/trainers/flags/optimizer_flags.h"

#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

LearningRate rate_of(const OptimizerFlags& flags, const Optimizer& optimizer) {
  const LearningRate rate =
      flags.learning_rate ? LearningRate(*flags.learning_rate) : optimizer.rate();
  if (!flags.lr_schedule) return warm_up(rate, flags.warmup_steps);
  require<FlagError>(rate.is_constant(), "--lr_schedule=", *flags.lr_schedule,
                     " starts from a constant rate, and the program's is a schedule of its own (",
                     rate, "); say --learning_rate=X, too, to replace that");
  return scheduled_rate(rate.at({}), *flags.lr_schedule, flags.warmup_steps);
}

bool is_not_negative(double number) { return number >= 0; }

}  // namespace

void add_optimizer_flags(FlagParser& parser, OptimizerFlags& flags, double& clip_norm) {
  parser.add_number(
      "--learning_rate", flags.learning_rate, "a finite number >= 0", is_not_negative, "X",
      "a constant rate >= 0, instead of the program's rate or schedule [the program's]");
  parser.add_parsed(
      "--lr_schedule", flags.lr_schedule, parse_schedule, "SPEC",
      cat("how the rate changes: ", schedule_help(), " [constant, or the program's]"));
  parser.add("--warmup_steps", flags.warmup_steps, 0, std::numeric_limits<std::int64_t>::max(), "N",
             "let the rate grow to what it is over the first N steps [0]");
  parser.add_number(
      "--weight_decay", flags.weight_decay, "a finite number >= 0", is_not_negative, "X",
      "by which share of themselves weights shrink per unit of the rate; sgd, momentum and "
      "rms_prop add it to gradients, adamw and lamb take it by themselves and leave biases alone, "
      "adam takes none; 0: none [the program's]");
  parser.add_number(
      "--clip_norm", clip_norm, "a finite number >= 0", is_not_negative, "X",
      "scale combined gradients down where the norm of all together is above X, before weight "
      "decay; 0: do not [0]");
  parser.add_number(
      "--moving_average", flags.moving_average, "a number >= 0 and below 1",
      [](double x) { return x >= 0 && x < 1; }, "DECAY",
      "keep exponential moving averages of what is trained, e.g. 0.999, and evaluate with them "
      "[none]");
  parser.add("--moving_average_warmup", flags.moving_average_warmup,
             "let averages forget the first values soon, for short runs: the decay of update n is "
             "at most (1 + n) / (10 + n) [false]");
}

Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags) {
  Optimizer made = optimizer.with_rate(rate_of(flags, optimizer));
  if (const std::optional<double> decay = flags.weight_decay)
    made = as_flag(cat("--weight_decay=", *decay), [&] { return made.with_weight_decay(*decay); });
  if (flags.moving_average)
    made = made.with_averages(
        {.decay = *flags.moving_average, .counts_updates = flags.moving_average_warmup});
  return made;
}

}  // namespace belfry
