#include "belfry/trainers/flags/optimizer_flags.h"

#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/util/flag_values.h"

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

// What a row of the optimizer has in common: reports and identities ask the optimizer itself.
OptionRow optimizer_row(std::string name, std::string unit, std::string text, std::string otherwise,
                        std::vector<std::string> elsewhere = {}) {
  return {.name = std::move(name),
          .unit = std::move(unit),
          .text = std::move(text),
          .otherwise = std::move(otherwise),
          .noted = false,
          .elsewhere = std::move(elsewhere)};
}

Option<OptimizerFlags> group_option() {
  auto option = parsed(
      &OptimizerFlags::groups, parse_groups,
      optimizer_row(
          "group", "PATTERN:SETTINGS",
          "what is special about variables whose name, or a scope that they lie below, is like the "
          "pattern, in which a star stands for any characters. Settings, with commas between: "
          "rate=X multiplies the rate of the schedule, weight_decay=X replaces the weight decay, "
          "freeze does not train them, most_rank=N leaves out those of more than N dimensions. Of "
          "several flags, or groups with ; between, the first that fits a variable counts, e.g. "
          "'head:rate=10' or '*:most_rank=1,weight_decay=0'",
          "the program's"),
      [](const std::vector<VariableGroup>& groups) { return text_of_groups(groups); });
  option.separator = ';';
  return option;
}

Option<OptimizerFlags> warmup_option() {
  auto option = whole_number(
      &OptimizerFlags::warmup_steps, 0, std::numeric_limits<std::int64_t>::max(),
      optimizer_row("warmup_steps", "N", "let the rate grow to what it is over the first N steps",
                    "0", {"warmup"}));
  option.noted = true;
  return option;
}

}  // namespace

Options<OptimizerFlags> optimizer_options() {
  return {
      number(&OptimizerFlags::learning_rate, "a finite number >= 0", is_not_negative,
             optimizer_row("learning_rate", "X",
                           "a constant rate >= 0, instead of the program's rate or schedule",
                           "the program's", {"lr"})),
      parsed(&OptimizerFlags::lr_schedule, parse_schedule,
             optimizer_row("lr_schedule", "SPEC", cat("how the rate changes: ", schedule_help()),
                           "constant, or the program's")),
      warmup_option(),
      number(&OptimizerFlags::weight_decay, "a finite number >= 0", is_not_negative,
             optimizer_row(
                 "weight_decay", "X",
                 "by which share of themselves weights shrink per unit of the rate; sgd, momentum "
                 "and rms_prop add it to gradients, adamw and lamb take it by themselves and leave "
                 "biases alone, adam takes none; 0: none",
                 "the program's", {"wd"})),
      group_option(),
      number(
          &OptimizerFlags::moving_average, "a number >= 0 and below 1",
          [](double x) { return x >= 0 && x < 1; },
          optimizer_row(
              "moving_average", "DECAY",
              "keep exponential moving averages of what is trained, e.g. 0.999, and evaluate with "
              "them",
              "none", {"ema"})),
      on_off(&OptimizerFlags::moving_average_warmup,
             optimizer_row(
                 "moving_average_warmup", "",
                 "let averages forget the first values soon, for short runs: the decay of update n "
                 "is at most (1 + n) / (10 + n)",
                 "false"))};
}

Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags) {
  Optimizer made = optimizer.with_rate(rate_of(flags, optimizer));
  if (const std::optional<double> decay = flags.weight_decay)
    made = as_flag(cat("--weight_decay=", *decay), [&] { return made.with_weight_decay(*decay); });
  if (!flags.groups.empty()) {
    std::vector<VariableGroup> groups = flags.groups;
    groups.insert(groups.end(), made.groups().begin(), made.groups().end());
    made = as_flag(cat("--group=", text_of_groups(flags.groups)),
                   [&] { return made.with_groups(std::move(groups)); });
  }
  if (flags.moving_average)
    made = made.with_averages(
        {.decay = *flags.moving_average, .counts_updates = flags.moving_average_warmup});
  return made;
}

}  // namespace belfry
