#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_groups_impl.h"
#include "belfry/trainers/program/run_flags.h"

namespace belfry {
namespace {

constexpr int kMostOfFlag = std::numeric_limits<int>::max();

constexpr auto trainer_in = [](auto& flags) -> auto& { return flags.trainer; };
constexpr auto files_in = [](auto& flags) -> auto& { return flags.files; };

// "replicated (a copy of all variables per device) | simple (one tower)".
std::string trainers_text() {
  std::vector<std::string> texts;
  for (const std::string& name : trainer_names())
    texts.push_back(cat(name, " (", find_trainer(name).summary, ")"));
  return join(texts, " | ");
}

// The table of all flags of training.
class FlagTable {
 public:
  explicit FlagTable(const FlagDefaults& defaults) : defaults_(defaults) {}

  Options<TrainFlags> make() {
    add_devices();
    add_training();
    if (!defaults_.benchmark) {
      add_data();
      group_ = "Runs";
      add_part(
          all_, run_options(), group_, [](auto& flags) -> auto& { return flags.run; });
      add_overwrite();
    }
    add_part(
        all_, config_options(), defaults_.benchmark ? group_ : "Runs",
        [](auto& flags) -> auto& { return flags.run; });
    add("Inspection", inspection_options(defaults_));
    add_own();
    add_execution();
    if (defaults_.benchmark)
      std::erase_if(all_, [](const OptionRow& row) { return !row.benchmarks; });
    return std::move(all_);
  }

 private:
  void add(Option<TrainFlags> option) {
    option.group = group_;
    all_.push_back(std::move(option));
  }
  void add(const std::string& group, Options<TrainFlags> options) {
    group_ = group;
    for (Option<TrainFlags>& option : options) add(std::move(option));
  }
  void add(const Options<TrainerOptions>& options) { add_part(all_, options, group_, trainer_in); }
  template <class S, class Part>
  void add(const Option<S>& option, Part part) {
    add(of_part<TrainFlags>(option, part));
  }
  void set_default(std::string_view name, const std::string& otherwise) {
    for (Option<TrainFlags>& option : all_)
      if (option.name == name) option.otherwise = otherwise;
  }

  void add_devices() {
    group_ = "Devices and gradients";
    add_part(all_, device_options(), group_, device_flags);
    add(any_text(&TrainFlags::kind, {.name = "trainer",
                                     .unit = "NAME",
                                     .text = trainers_text(),
                                     .otherwise = "simple with one device, else replicated",
                                     .trains = true,
                                     .chosen = true,
                                     .reported = true,
                                     .compared = false}));
    add(combining_options());
    group_ = kAutoGroup;
    add(
        links_option(), [](auto& flags) -> auto& { return flags.links; });
    add(
        auto_any_option(),
        [](auto& flags) -> auto& { return flags.trainer.aggregation.choice.any; });
  }

  void add_training() {
    group_ = "Training";
    add(batch_options());
    set_default("batch_size", defaults_.benchmark               ? "the model's"
                              : defaults_.global_batch_size > 0 ? "`global_batch_size` divided by "
                                                                  "devices"
                                                                : cat(defaults_.batch_size));
    auto global = whole_number(
        &TrainFlags::global_batch_size, 1, kMostOfFlag,
        {.name = "global_batch_size",
         .unit = "N",
         .text = "examples per step on all devices together, instead of `batch_size` on each",
         .otherwise = defaults_.global_batch_size > 0 ? cat(defaults_.global_batch_size) : "",
         .noted = false});
    add(global);
    add(length_options());
    set_default("epochs", cat(defaults_.epochs));
    add_part(
        all_, optimizer_options(), group_, [](auto& flags) -> auto& { return flags.optimizer; });
    add(parsed(&TrainFlags::early_stop, parse_early_stop,
               {.name = "early_stop",
                .unit = "METRIC:min|max:N",
                .text = "end the training when N evaluations in a row bring no lower (or higher) "
                        "value of a metric, e.g. validation_loss:min:3; a fourth part, as in "
                        "validation_loss:min:3:0.01, is the least improvement that counts. "
                        "Metrics of training steps are looked at after each epoch, too",
                .otherwise = "none",
                .trains = true,
                .benchmarks = false,
                .compared = false,
                .elsewhere = {"patience"}}));
    add_evaluation();
    add(computing_options());
  }

  void add_evaluation() {
    const auto evaluation_in = [](auto& flags) -> auto& { return flags.evaluation; };
    add(whole_number(&EvaluationOptions::every_epochs, 0, kMostOfFlag,
                     {.name = "eval_every_epochs",
                      .unit = "N",
                      .text = "evaluate the test data after every Nth epoch, and after training; "
                              "0: not after epochs, and without `eval_every_steps` never, so that "
                              "no test data are read",
                      .otherwise = "1",
                      .trains = true,
                      .benchmarks = false,
                      .compared = false}),
        evaluation_in);
    add(whole_number(
            &EvaluationOptions::every_steps, 0, kMostOfFlag,
            {.name = "eval_every_steps",
             .unit = "N",
             .text = "evaluate the test data after every Nth step, too; 0: not after steps",
             .otherwise = "0",
             .trains = true,
             .benchmarks = false,
             .compared = false}),
        evaluation_in);
    add(whole_number(&EvaluationOptions::batches, 0, kMostOfFlag,
                     {.name = "eval_batches",
                      .unit = "N",
                      .text = "take only the first samples of the test data, as many as N steps of "
                              "one batch do; 0: all",
                      .otherwise = "0",
                      .benchmarks = false,
                      .compared = false}),
        evaluation_in);
    add(on_off(&TrainerOptions::evaluates_only,
               {.name = "evaluate_only",
                .text = "evaluate the weights of `load` or `resume=PATH`, and train nothing; flags "
                        "about training have no use then, and those of `config` are left out",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .benchmarks = false,
                .compared = false}),
        trainer_in);
  }

  void add_data() {
    group_ = "Data";
    if (defaults_.reads_files) {
      add(any_text(&FileFlags::data_dir,
                   {.name = "data_dir",
                    .unit = "DIR",
                    .text = "folder with the data files, for the program's data set",
                    .otherwise = "none",
                    .own_process = true,
                    .noted = false,
                    .elsewhere = {"dataset", "data"}}),
          files_in);
      add(parsed(
              &FileFlags::bad_records, parse_bad_records,
              {.name = "bad_records",
               .unit = "stop|skip:N",
               .text = "what to do with records of data files that cannot be used: end with an "
                       "error that names the first, or skip up to N in each data set and warn of "
                       "each",
               .otherwise = "stop"}),
          files_in);
    }
    add(data_options());
  }

  void add_overwrite() {
    add(on_off(&FileFlags::overwrite,
               {.name = "overwrite",
                .text = "let `resume=never` or `resume=PATH` replace the run in `run_dir`",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .trains = true}),
        files_in);
  }

  void add_own() {
    group_ = "Of this program";
    for (const OwnOption& own : defaults_.own) {
      add(own_option<TrainFlags>(own, "the recipe's flag"));
      // A recipe's option is part of the model and the data, which identities know.
      if (all_.back().scope == Scope::kResults) all_.back().scope = Scope::kExecution;
      all_.back().of_program = true;
    }
    for (const std::string& name : trainer_names()) {
      group_ = cat("Of the trainer ", name);
      for (const Option<TrainerOptions>& own : own_option_rows(find_trainer(name))) {
        add(of_part<TrainFlags>(own, trainer_in));
        Option<TrainFlags>& option = all_.back();
        option.chosen = true;
        option.trains = true;
        option.only_of = name;
      }
    }
  }

  void add_execution() {
    group_ = "Execution and output";
    add(execution_options());
    for (Option<TrainFlags>& option : all_)
      if (option.name == "threads") option.here = cat("(", usable_cores(), " here)");
    add(group_, process_options());
    add(any_text(&FileFlags::json, {.name = "json",
                                    .unit = "FILE",
                                    .text = "write the results there, as one JSON object",
                                    .otherwise = "none",
                                    .scope = Scope::kThisCall,
                                    .own_process = true}),
        files_in);
  }

  const FlagDefaults& defaults_;
  std::string group_;
  Options<TrainFlags> all_;
};

}  // namespace

DeviceFlags device_flags(TrainFlags& flags) {
  SessionOptions& session = flags.trainer.session;
  return {flags.trainer.devices, session.logical_gpus, session.deterministic,
          flags.files.algorithms};
}

Options<TrainFlags> training_options(const FlagDefaults& defaults) {
  return FlagTable(defaults).make();
}

}  // namespace belfry
