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
  return scheduled(rate.at({}), *flags.lr_schedule, flags.warmup_steps);
}

}  // namespace

void add_optimizer_flags(FlagParser& parser, OptimizerFlags& flags, double& clip_norm) {
  parser.add(
      "--learning_rate",
      [&to = flags.learning_rate](const WrittenFlag& flag) {
        read_number(
            flag, "a finite number >= 0", [](double x) { return x >= 0; }, to.emplace());
      },
      "X", "a constant rate >= 0, instead of the program's rate or schedule [the program's]");
  parser.add(
      "--lr_schedule",
      [&to = flags.lr_schedule](const WrittenFlag& flag) {
        to = as_flag(flag.written, [&] { return parse_schedule(flag.value); });
      },
      "SPEC", cat("how the rate changes: ", schedule_help(), " [constant, or the program's]"));
  parser.add("--warmup_steps", flags.warmup_steps, 0, std::numeric_limits<std::int64_t>::max(), "N",
             "let the rate grow to what it is over the first N steps [0]");
  parser.add(
      "--weight_decay",
      [&to = flags.weight_decay](const WrittenFlag& flag) {
        read_number(
            flag, "a finite number >= 0", [](double x) { return x >= 0; }, to.emplace());
      },
      "X",
      "by which share of themselves weights shrink per unit of the rate; sgd, momentum and "
      "rms_prop add it to gradients, adamw and lamb take it by themselves and leave biases alone, "
      "adam takes none; 0: none [the program's]");
  parser.add(
      "--clip_norm",
      [&to = clip_norm](const WrittenFlag& flag) {
        read_number(
            flag, "a finite number >= 0", [](double x) { return x >= 0; }, to);
      },
      "X",
      "scale combined gradients down where the norm of all together is above X, before weight "
      "decay; 0: do not [0]");
  parser.add(
      "--moving_average",
      [&to = flags.moving_average](const WrittenFlag& flag) {
        read_number(
            flag, "a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; },
            to.emplace());
      },
      "DECAY",
      "keep exponential moving averages of what is trained, e.g. 0.999, and evaluate with them "
      "[none]");
}

Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags) {
  Optimizer made = optimizer.with_rate(rate_of(flags, optimizer));
  if (const std::optional<double> decay = flags.weight_decay)
    made = as_flag(cat("--weight_decay=", *decay), [&] { return made.with_weight_decay(*decay); });
  if (flags.moving_average) made = made.with_averages({.decay = *flags.moving_average});
  return made;
}

}  // namespace belfry
