#include "belfry/trainers/flags/weight_flags.h"

#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/option_flags.h"
#include "belfry/trainers/flags/weight_rows.h"
#include "belfry/trainers/names/name_rules.h"

namespace belfry {

Options<WeightFlags> weight_options(const std::string& prefix) {
  Option<WeightFlags> weights{
      {.name = cat(prefix, "weights"),
       .unit = "validated|raw|average",
       .text = "the weights as they were trained (raw), their moving averages, or what the "
               "training evaluated: averages, if it kept some",
       .otherwise = "validated",
       .scope = Scope::kThisCall}};
  weights.read = [](WeightFlags& flags, const WrittenFlag& flag) {
    flags.weights = as_flag(flag.written, [&] { return find_weight_choice(flag.value); });
  };
  weights.value = [](const WeightFlags& flags) { return JsonValue(name_of(flags.weights)); };
  Option<WeightFlags> checkpoint{
      {.name = cat(prefix, "checkpoint"),
       .unit = "best|latest|N",
       .text = "of a run: its best checkpoint, its latest, or that of step N",
       .otherwise = "best, or latest if the run has no best one",
       .scope = Scope::kThisCall}};
  checkpoint.read = [](WeightFlags& flags, const WrittenFlag& flag) {
    flags.checkpoint = as_flag(flag.written, [&] { return parse_checkpoint_choice(flag.value); });
  };
  checkpoint.value = [](const WeightFlags& flags) {
    return flags.checkpoint ? JsonValue(flags.checkpoint->str()) : JsonValue();
  };
  return {weights, checkpoint};
}

Options<NameFlags> name_options(const std::string& what) {
  Option<NameFlags> names{
      {.name = "names",
       .unit = cat(join(known_name_rules(), "|"), "|FILE"),
       .text = cat("whose names the weights of ", what,
                   " have: those of another program, by rules that Belfry has or a file of them"),
       .otherwise = "none",
       .scope = Scope::kThisCall}};
  names.read = [](NameFlags& flags, const WrittenFlag& flag) { flags.names = flag.value; };
  names.value = [](const NameFlags& flags) { return JsonValue(flags.names); };
  Option<NameFlags> partial{
      {.name = "partial",
       .text = "with `names`: leave out weights that no rule takes, and let those that are missing "
               "or of another shape stay as they are",
       .otherwise = "false",
       .scope = Scope::kThisCall}};
  partial.read = [](NameFlags& flags, const WrittenFlag& flag) {
    flags.partial = read_switch(flag.written, flag.value);
  };
  partial.value = [](const NameFlags& flags) { return JsonValue(flags.partial); };
  return {names, partial};
}

void add_name_flags(FlagParser& parser, const std::string& what, std::string& names,
                    bool& partial) {
  add_options_for(parser, name_options(what), NameFlags{names, partial});
}

void add_weight_flags(FlagParser& parser, const std::string& prefix, WeightChoice& weights,
                      std::optional<CheckpointChoice>& checkpoint) {
  add_options_for(parser, weight_options(prefix), WeightFlags{weights, checkpoint});
}

void add_checkpoint_flag(FlagParser& parser, const std::string& prefix,
                         std::optional<CheckpointChoice>& checkpoint) {
  WeightChoice none = WeightChoice::kValidated;
  add_options_for<WeightFlags>(parser, {weight_options(prefix)[1]}, {none, checkpoint});
}

}  // namespace belfry
