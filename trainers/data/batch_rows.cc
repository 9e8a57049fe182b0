#include "belfry/trainers/data/batch_rows.h"

#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option_fields.h"

namespace belfry {
namespace {

std::vector<double> parse_tower_weights(const WrittenFlag& list) {
  std::vector<double> weights;
  for (const std::string_view text : split(list.value, ',')) {
    require<FlagError>(!text.empty(), list.written,
                       ": a number is missing beside a comma; write one for each device with one "
                       "comma between, such as 2,1");
    weights.push_back(parse_number<double>(cat(list.written, ": '", shown(text), "'"), text));
  }
  return weights;
}

// What trainers that combine no gradients answer.
std::string takes_one_size(const OptionQuestion& asking) {
  return cat(" gives devices batches of different sizes, which ", asking.trainer,
             " does not take; leave it out, or use ", asking.other("trainer=replicated"));
}

Option<BatchOptions> accumulation_option() {
  auto option = whole_number(
      &BatchOptions::gradient_accumulation_steps, 1, std::numeric_limits<int>::max(),
      {.name = "gradient_accumulation_steps",
       .unit = "N",
       .text = "batches per step, one after another: one update by the mean of their gradients, as "
               "with N times the batch; schedules and progress count updates",
       .otherwise = "1",
       .scope = Scope::kResults,
       .trains = true,
       .words = "the number of batches per step (gradient_accumulation_steps)",
       .key = "accumulation"});
  option.refusal = [](const BatchOptions& batches, const OptionQuestion& asking) -> std::string {
    if (batches.gradient_accumulation_steps < 1) return ": a step takes at least 1 batch";
    if (batches.gradient_accumulation_steps == 1) return "";
    if (makes_unequal(batches.uneven))
      return cat(" takes the mean over batches of one size, and ", asking.written("uneven"),
                 " makes a smaller last one; use ", asking.other("uneven=drop"), " or ",
                 asking.other("uneven=error"));
    return asking.kind.combines || asking.kind.updates_between
               ? ""
               : cat(" is the mean of combined gradients, and the trainer ", asking.kind.name,
                     kCombinesNone);
  };
  return option;
}

Option<BatchOptions> uneven_option() {
  auto option = parsed(
      &BatchOptions::uneven, find_uneven,
      {.name = "uneven",
       .unit = "WAY",
       .text = "drop|pad|weight|error: what to do with examples that do not fill a last batch",
       .otherwise = "drop",
       .scope = Scope::kResults,
       .trains = true,
       .benchmarks = false,
       .words = "what is done with batches that are not full (uneven)"},
      [](Uneven way) { return name_of(way); });
  option.refusal = [](const BatchOptions& batches, const OptionQuestion& asking) {
    return makes_unequal(batches.uneven) && !asking.kind.combines ? takes_one_size(asking) : "";
  };
  return option;
}

Option<BatchOptions> tower_weights_option() {
  auto option = parsed(
      &BatchOptions::tower_weights, parse_tower_weights,
      {.name = "tower_weights",
       .unit = "LIST",
       .text = "share of each device in a batch of `batch_size` examples per device, a number for "
               "each, e.g. 2,1; gradients count by examples",
       .otherwise = "equal",
       .scope = Scope::kResults,
       .trains = true,
       .noted = false,
       .words = "the shares of the devices (tower_weights)"},
      [](const std::vector<double>& weights) {
        return weights.empty() ? JsonValue() : JsonValue::array(weights);
      });
  option.refusal = [](const BatchOptions& batches, const OptionQuestion& asking) -> std::string {
    if (batches.tower_weights.empty()) return "";
    if (!asking.kind.combines) return takes_one_size(asking);
    return !asking.kind.takes_one_device
               ? ""
               : cat(" has no use for ", asking.trainer, ", which takes one device; leave it out");
  };
  return option;
}

}  // namespace

Options<BatchOptions> batch_option_rows() {
  return {accumulation_option(), uneven_option(), tower_weights_option()};
}

}  // namespace belfry
