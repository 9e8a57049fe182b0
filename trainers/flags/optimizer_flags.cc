#include "belfry/trainers/flags/optimizer_flags.h"

#include <limits>
#include <utility>

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
bool is_share(double number) { return number >= 0 && number < 1; }

// The options of optimizers by name, as Optimizer::with_option() takes them.
constexpr std::pair<const char*, std::optional<double> OptimizerFlags::*> kOptimizerOptions[] = {
    {"momentum", &OptimizerFlags::momentum},
    {"nesterov", &OptimizerFlags::nesterov},
    {"alpha", &OptimizerFlags::alpha},
    {"beta1", &OptimizerFlags::beta1},
    {"beta2", &OptimizerFlags::beta2},
    {"epsilon", &OptimizerFlags::epsilon},
    {"trust_coefficient", &OptimizerFlags::trust_coefficient}};

// The optimizers that have an option, such as "momentum, rms_prop, lars".
std::string optimizers_with(std::string_view option) {
  std::vector<std::string> names;
  for (const std::string& name : optimizer_names()) {
    const Optimizer optimizer = make_optimizer(name);
    for (const OptimizerOption& has : optimizer.options())
      if (has.name == option) names.push_back(name);
  }
  return join(names);
}

// What a row of the optimizer has in common: reports and identities ask the optimizer itself.
OptionRow optimizer_row(std::string name, std::string unit, std::string text, std::string otherwise,
                        std::vector<std::string> elsewhere = {}) {
  return {.name = std::move(name),
          .unit = std::move(unit),
          .text = std::move(text),
          .otherwise = std::move(otherwise),
          .trains = true,
          .noted = false,
          .elsewhere = std::move(elsewhere)};
}

Option<OptimizerFlags> group_option() {
  auto option = parsed(
      &OptimizerFlags::groups, parse_groups,
      optimizer_row(
          "group", "PATTERN:SETTINGS",
          "settings for the variables whose name, or a scope above them, matches PATTERN, where a "
          "star stands for any characters: rate=X multiplies the rate of the schedule, "
          "weight_decay=X replaces the weight decay, freeze leaves them untrained, most_rank=N is "
          "for those of at most N dimensions. May be given several times, or with ; between "
          "groups; "
          "the first group that fits a variable counts, and those of flags come before those of "
          "the program, e.g. 'head:rate=10' or '*:most_rank=1,weight_decay=0'",
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

// An option that some optimizers have. The optimizer knows which numbers it takes.
Option<OptimizerFlags> rule_option(std::optional<double> OptimizerFlags::*field,
                                   const std::string& name, const std::string& text) {
  return number(
      field, "a finite number", [](double) { return true; },
      optimizer_row(name, "X", cat("of ", optimizers_with(name), ": ", text), "the optimizer's"));
}

Option<OptimizerFlags> nesterov_option() {
  Option<OptimizerFlags> option{optimizer_row(
      "nesterov", "0|1",
      cat("of ", optimizers_with("nesterov"), ": look ahead, as Nesterov's momentum does"),
      "the optimizer's")};
  option.read = [](OptimizerFlags& flags, const WrittenFlag& flag) {
    flags.nesterov = read_switch(flag.written, flag.value);
  };
  option.value = [](const OptimizerFlags& flags) {
    return flags.nesterov ? JsonValue(*flags.nesterov != 0) : JsonValue();
  };
  return option;
}

Option<OptimizerFlags> weight_decay_form_option() {
  Option<OptimizerFlags> option{optimizer_row(
      "weight_decay_form", "coupled|decoupled",
      "coupled: weight decay is added to gradients; decoupled: weights shrink, and gradients stay; "
      "lars and lamb have a form of their own",
      "decoupled for adamw and lion, else coupled")};
  option.read = [](OptimizerFlags& flags, const WrittenFlag& flag) {
    flags.weight_decay_form =
        is_second(flag, "coupled", "decoupled") ? DecayForm::kDecoupled : DecayForm::kCoupled;
  };
  option.value = [](const OptimizerFlags& flags) {
    if (!flags.weight_decay_form) return JsonValue();
    return JsonValue(*flags.weight_decay_form == DecayForm::kDecoupled ? "decoupled" : "coupled");
  };
  return option;
}

Option<OptimizerFlags> optimizer_option() {
  return parsed(
      &OptimizerFlags::optimizer,
      [](const std::string& name) { return make_optimizer(name).kind(); },
      optimizer_row("optimizer", "NAME",
                    cat(join(optimizer_names(), "|"),
                        ": how gradients change weights; another than the program's begins with "
                        "its own usual rate, which is constant, and options"),
                    "the program's", {"optim", "opt"}),
      [](const std::string& name) { return name; });
}

}  // namespace

Options<OptimizerFlags> optimizer_options() {
  return {
      optimizer_option(),
      rule_option(&OptimizerFlags::momentum, "momentum",
                  "the share of the sum of earlier gradients that a step keeps"),
      nesterov_option(),
      rule_option(&OptimizerFlags::alpha, "alpha",
                  "the share of the mean of squares that a step keeps"),
      rule_option(&OptimizerFlags::beta1, "beta1",
                  "the share of the mean of gradients that a step keeps"),
      rule_option(&OptimizerFlags::beta2, "beta2",
                  "the share of the mean of squares that a step keeps; of lion: of the mean of "
                  "gradients"),
      rule_option(&OptimizerFlags::epsilon, "epsilon", "what is added to the divisor"),
      rule_option(&OptimizerFlags::trust_coefficient, "trust_coefficient",
                  "the norm of a scaled gradient as a share of the norm of its weights"),
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
                 "the share of itself by which a weight shrinks per unit of the rate "
                 "(`weight_decay_form`); adamw, lion, lamb and lars leave biases and norms alone; "
                 "0: none",
                 "the program's, or the optimizer's", {"wd"})),
      weight_decay_form_option(),
      group_option(),
      number(
          &OptimizerFlags::moving_average, "a number >= 0 and below 1", is_share,
          optimizer_row(
              "moving_average", "DECAY",
              "keep exponential moving averages of the trained variables, e.g. 0.999, and evaluate "
              "with them",
              "none", {"ema"})),
      on_off(&OptimizerFlags::moving_average_warmup,
             optimizer_row(
                 "moving_average_warmup", "",
                 "let averages forget the first values soon, for short runs: the decay of update n "
                 "is at most (1 + n) / (10 + n)",
                 "false"))};
}

namespace {

// What belongs to the model, not to the rule, stays.
Optimizer in_place_of(const Optimizer& optimizer, Optimizer other) {
  other = as_flag(cat("--optimizer=", other.kind()),
                  [&] { return other.with_groups(optimizer.groups()); });
  return optimizer.averages() ? other.with_averages(*optimizer.averages()) : other;
}

}  // namespace

Optimizer chosen_optimizer(const Optimizer& optimizer, const OptimizerFlags& flags) {
  const bool is_other = !flags.optimizer.empty() && flags.optimizer != optimizer.kind();
  Optimizer made = is_other ? in_place_of(optimizer, make_optimizer(flags.optimizer)) : optimizer;
  for (const auto& [name, field] : kOptimizerOptions)
    if (const std::optional<double> value = flags.*field)
      made = as_flag(cat("--", name, "=", *value), [&] { return made.with_option(name, *value); });
  if (const std::optional<double> decay = flags.weight_decay)
    made = as_flag(cat("--weight_decay=", *decay), [&] { return made.with_weight_decay(*decay); });
  if (const std::optional<DecayForm> form = flags.weight_decay_form)
    made = as_flag(
        cat("--weight_decay_form=", *form == DecayForm::kDecoupled ? "decoupled" : "coupled"),
        [&] { return made.with_decay_form(*form); });
  if (!flags.groups.empty()) {
    std::vector<VariableGroup> groups = flags.groups;
    for (VariableGroup group : made.groups()) {
      group.may_be_empty = true;
      groups.push_back(std::move(group));
    }
    made = as_flag(cat("--group=", text_of_groups(flags.groups)),
                   [&] { return made.with_groups(std::move(groups)); });
  }
  return made;
}

Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags) {
  Optimizer made = chosen_optimizer(optimizer, flags);
  made = made.with_rate(rate_of(flags, made));
  if (flags.moving_average)
    made = made.with_averages(
        {.decay = *flags.moving_average, .counts_updates = flags.moving_average_warmup});
  return made;
}

}  // namespace belfry
