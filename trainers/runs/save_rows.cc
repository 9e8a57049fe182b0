#include "belfry/trainers/runs/save_rows.h"

#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/options/option_fields.h"

namespace belfry {
namespace {

constexpr std::int64_t kMostSaves = std::numeric_limits<std::int64_t>::max();

BestMetric parse_best(const WrittenFlag& flag) {
  const std::size_t colon = flag.value.rfind(':');
  const std::string_view text = flag.value;
  const std::string_view way = colon == text.npos ? "" : text.substr(colon + 1);
  require<FlagError>(colon > 0 && (way == "min" || way == "max"), flag.written,
                     " is no metric with the way to compare it; write --", flag.name,
                     "=NAME:min or NAME:max, e.g. validation_loss:min");
  return {.name = std::string(text.substr(0, colon)), .largest = way == "max"};
}

OptionRow save_row(std::string name, std::string unit, std::string text, std::string otherwise) {
  return {.name = std::move(name),
          .unit = std::move(unit),
          .text = std::move(text),
          .otherwise = std::move(otherwise),
          .scope = Scope::kRunDirectory};
}

// Every 10 steps if there are several processes.
Option<SaveSchedule> memory_option() {
  Option<SaveSchedule> option{
      save_row("memory_save_every_steps", "N",
               "after every N steps, keep a save of `run_dir` in the memory of each host "
               "(/dev/shm), where the last two stay, for a restart after a process has died; 0: "
               "never",
               "10 with several processes, else 0")};
  option.noted = false;
  option.read = [](SaveSchedule& schedule, const WrittenFlag& flag) {
    std::int64_t steps = 0;
    read_integer(flag, 0, kMostSaves, steps);
    schedule.memory_every_steps = steps;
  };
  option.value = [](const SaveSchedule& schedule) {
    const auto& steps = schedule.memory_every_steps;
    return steps ? JsonValue(*steps) : JsonValue();
  };
  return option;
}

}  // namespace

Options<SaveSchedule> save_options() {
  return {
      whole_number(&SaveSchedule::every_steps, 0, kMostSaves,
                   save_row("save_every_steps", "N",
                            "save into `run_dir` after every N steps; 0: not by steps", "0")),
      whole_number(&SaveSchedule::every_epochs, 0, kMostSaves,
                   save_row("save_every_epochs", "N",
                            "save into `run_dir` after every N epochs; "
                            "0: not by epochs",
                            "1")),
      number(
          &SaveSchedule::every_minutes, "a number >= 0", [](double x) { return x >= 0; },
          save_row("save_every_minutes", "X",
                   "save into `run_dir` when X minutes have passed since the last save; 0: not by "
                   "time",
                   "0")),
      memory_option(),
      whole_number(
          &SaveSchedule::keep, 1, std::numeric_limits<int>::max(),
          save_row("keep", "N", "keep the N newest checkpoints of `run_dir`, and the best", "3")),
      parsed(&SaveSchedule::best, parse_best,
             save_row("best_metric", "NAME:min|max",
                      "the metric that says which checkpoint is the best, e.g. "
                      "validation_accuracy:max",
                      "none is")),
      parsed(
          &SaveSchedule::on_error, find_on_save_error,
          save_row("on_save_error", "stop|retry|continue",
                   "what to do if a checkpoint cannot be written: end with the error, save again a "
                   "minute later, or wait for the next save; older checkpoints are kept",
                   "retry"),
          [](OnSaveError way) { return name_of(way); })};
}

}  // namespace belfry
