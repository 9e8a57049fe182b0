#include "belfry/trainers/core/option_rows.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/option_rows_impl.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/data/batch_rows.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

constexpr std::int64_t kMostStepsOfRun = std::numeric_limits<std::int64_t>::max();

Option<TrainerOptions> shards_option() {
  auto option = whole_number(
      &TrainerOptions::shards, 1, kMostOfOption,
      {.name = "shards",
       .unit = "V",
       .text = "cut the global batch into V parts, equally many on each CPU device. Any core may "
               "compute a part, and V alone decides the bits of results",
       .otherwise = "by model and global batch",
       .noted = false,
       .reported = true});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) {
    return shards_refusal(options, asking.kind, asking.processes);
  };
  return option;
}

Option<TrainerOptions> on_nonfinite_option() {
  auto option = one_of(
      &TrainerOptions::on_nonfinite,
      {{"stop", OnNonfinite::kStop},
       {"skip", OnNonfinite::kSkip},
       {"restore", OnNonfinite::kRestore},
       {"continue", OnNonfinite::kContinue}},
      {.name = "on_nonfinite",
       .unit = "stop|skip|restore|continue",
       .text = "what to do when a loss or its gradient is NaN or infinite, so that it updates "
               "nothing: end with an error, take the next batch, or take it with the variables of "
               "the newest checkpoint; continue: check nothing, train on, and end with an error "
               "if the loss still is",
       .otherwise = "stop",
       .kept = true,
       .trains = true,
       .compared = false});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    if (options.on_nonfinite != OnNonfinite::kSkip && options.on_nonfinite != OnNonfinite::kRestore)
      return "";
    if (is_free_running(options, asking.kind))
      return cat(" with ", asking.written("async"),
                 ": towers do not wait to hear whether all gradients are finite; use ",
                 asking.other("async=ordered"), ", or ", asking.other("on_nonfinite=stop"));
    const std::string without = optimizer_without_factor(options);
    return without.empty() ? ""
                           : cat(" leaves updates out, and the optimizer ", without,
                                 " does not say that it heeds Update::factor "
                                 "(Optimizer::Rule::takes_loss_scale)");
  };
  return option;
}

Option<TrainerOptions> restores_option() {
  return whole_number(&TrainerOptions::on_nonfinite_restores, 1, 1'000'000,
                      {.name = "on_nonfinite_restores",
                       .unit = "N",
                       .text = "restore at most N times in a call of the program, then stop "
                               "(`on_nonfinite`)",
                       .otherwise = "3",
                       .kept = true,
                       .trains = true,
                       .benchmarks = false,
                       .compared = false});
}

// How errors name an option with its value: "async=free".
std::string option_with_value(const Options<TrainerOptions>& rows, const TrainerOptions& options,
                              std::string_view name) {
  const Option<TrainerOptions>* const row = find_option(rows, name);
  const std::string named = option_name(name);
  return row && row->value ? cat(named, "=", text_of(row->value(options))) : named;
}

}  // namespace

bool is_free_running(const TrainerOptions& options, const TrainerFacts& kind) {
  return kind.takes_async && options.async == "free";
}

Options<TrainerOptions> batch_options() {
  Options<TrainerOptions> rows{whole_number(&TrainerOptions::batch_size, 1, kMostOfOption,
                                            {.name = "batch_size",
                                             .unit = "N",
                                             .text = "examples per device and step",
                                             .noted = false,
                                             .reported = true,
                                             .elsewhere = {"bs", "batch"}}),
                               shards_option()};
  add_part(
      rows, batch_option_rows(), "", [](auto& options) -> auto& { return options.batches; });
  return rows;
}

Options<TrainerOptions> length_options() {
  return {whole_number(&TrainerOptions::epochs, 1, kMostOfOption,
                       {.name = "epochs",
                        .unit = "N",
                        .text = "passes over the training data",
                        .trains = true,
                        .benchmarks = false,
                        .compared = false,
                        .elsewhere = {"max_epochs"}}),
          whole_number(&TrainerOptions::max_steps, 0, kMostStepsOfRun,
                       {.name = "max_steps",
                        .unit = "N",
                        .text = "stop after N steps at the latest; 0: no limit",
                        .otherwise = "0",
                        .trains = true,
                        .benchmarks = false,
                        .compared = false,
                        .elsewhere = {"steps", "num_steps"}}),
          on_nonfinite_option(), restores_option()};
}

Options<TrainerOptions> data_options() {
  return {whole_number(&TrainerOptions::data_workers, 0, kMostThreads,
                       {.name = "data_workers",
                        .unit = "N",
                        .text = "threads that decode and augment the coming batches, in addition "
                                "to `threads`; 0: the training thread does it between its steps; "
                                "results do not depend on N",
                        .otherwise = "1",
                        .benchmarks = false,
                        .elsewhere = {"workers", "num_workers"}})};
}

Options<TrainerOptions> execution_options() {
  return {of_session(whole_number(&SessionOptions::threads, 0, kMostThreads,
                                  {.name = "threads",
                                   .unit = "N",
                                   .text = cat("worker threads, the main thread included, at most ",
                                               kMostThreads, "; 0: all usable cores"),
                                   .otherwise = "0",
                                   .own_process = true})),
          of_session(on_off(&SessionOptions::capture,
                            {.name = "capture",
                             .unit = "0|1",
                             .text = "1: on GPUs, replay the work of a step as CUDA graphs; 0: "
                                     "launch kernel by kernel, with the same bits",
                             .otherwise = "1",
                             .reported = true}))};
}

const Options<TrainerOptions>& trainer_option_rows() {
  static const Options<TrainerOptions> all = [] {
    Options<TrainerOptions> rows;
    for (const auto& make : {combining_options, batch_options, length_options, computing_options,
                             data_options, execution_options})
      for (Option<TrainerOptions>& row : make()) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

Options<TrainerOptions> own_option_rows(const TrainerKind& kind) {
  Options<TrainerOptions> rows;
  for (const OwnOption& own : kind.options)
    rows.push_back(own_option<TrainerOptions>(own, whose_option(kind)));
  return rows;
}

bool is_in_fingerprint(const OptionRow& row) { return row.scope == Scope::kResults; }

void check_rows(const TrainerOptions& options, const TrainerKind& kind) {
  const Options<TrainerOptions>& rows = trainer_option_rows();
  const auto written = [&](std::string_view name) {
    return option_with_value(rows, options, name);
  };
  const OptionQuestion asking{.kind = kind.facts(),
                              .processes = processes_of(options),
                              .trainer = cat("the trainer ", kind.name),
                              .written = written};
  for (const Option<TrainerOptions>& row : rows)
    if (const std::string why = row.refusal ? row.refusal(options, asking) : ""; !why.empty())
      throw OptionError(about_option(row.name, written(row.name), why));
}

}  // namespace belfry
