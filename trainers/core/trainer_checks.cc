#include "belfry/trainers/core/trainer_checks.h"

#include <cmath>
#include <map>
#include <set>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// Clipping is a factor, too, and so is what makes a mean of a sum.
void check_factor(const TrainerOptions& options) {
  const int steps = options.batches.gradient_accumulation_steps;
  const std::string without = optimizer_without_factor(options);
  require_option((options.clip_norm == 0 && steps == 1) || without.empty(),
                 steps > 1 ? "gradient_accumulation_steps" : "clip_norm", "=",
                 steps > 1 ? cat(steps) : cat(options.clip_norm),
                 " needs an optimizer that heeds the factor of "
                 "gradients (Optimizer::Rule::takes_loss_scale), and ",
                 without, " does not");
}

void check_losses_of(const TrainerOptions& options, const TrainerKind& kind) {
  if (options.losses.empty()) return;
  check_losses(options.losses);
  require(!options.optimizer,
          "TrainerOptions has losses, each with its optimizer, and an optimizer besides; leave "
          "that out");
  require_option<TrainerMistake>(
      !kind.runs_free(options), "async",
      "=free trains one loss: towers that run free take no turns; use ordered");
  require_option<OptionMistake>(
      options.batches.gradient_accumulation_steps == 1, "gradient_accumulation_steps", "=",
      options.batches.gradient_accumulation_steps,
      " trains one loss: several take turns on each batch, and these would be updated "
      "once for all of them; use 1");
}

std::string field_text(const Dataset::Field& field) {
  return cat(shown(field.name), " ", name_of(field.dtype), field.shape);
}

std::string fields_text(std::span<const Dataset::Field> fields) {
  std::vector<std::string> texts;
  for (const Dataset::Field& field : fields) texts.push_back(field_text(field));
  return join(texts);
}

void check_fields(std::span<const Dataset::Field> fields, std::string_view what) {
  require(!fields.empty(), "the ", what, " have no fields: Dataset::signature() is empty");
  for (const Dataset::Field& field : fields) {
    for (const std::int64_t dim : field.shape.dims())
      require(dim >= 0, "the ", what, " have a field ", field_text(field),
              "; all samples have one shape, whose dimensions are known and not negative");
    try {
      field.shape.elements();
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          cat("the ", what, " have a field ", field_text(field), ": ", error.what()));
    }
  }
}

}  // namespace

std::int64_t checked_size(const Dataset& data, std::string_view what) {
  const std::int64_t size = data.size();
  require(size >= 0, "the ", what, " (", data.describe(), ") say that they have ", size,
          " samples; Dataset::size() is their number, 0 or more");
  const std::int64_t memory = host_memory();
  require(size <= memory / static_cast<std::int64_t>(sizeof size), "the ", what, " (",
          data.describe(), ") say that they have ", size,
          " samples: the order of an epoch alone would need more than the ", byte_text(memory),
          " of this machine; for data without an end, Dataset::size() is how many samples make an "
          "epoch");
  return size;
}

void check_callbacks(std::span<const std::shared_ptr<Callback>> callbacks, std::string_view where) {
  std::map<std::string, std::size_t> named;
  for (std::size_t i = 0; i < callbacks.size(); ++i) {
    require(callbacks[i] != nullptr, where, "[", i, "] is null, one of ", callbacks.size(),
            "; leave it out, or make it, as by std::make_shared<MyCallback>()");
    const std::string name = callbacks[i]->name();
    if (name.empty()) continue;
    const auto [before, is_new] = named.emplace(name, i);
    require(is_new, where, "[", i, "] is called '", name, "', as [", before->second,
            "] is; checkpoints keep the state of callbacks by name, so give it another one");
  }
}

void check_options(const TrainerOptions& options, const TrainerKind& kind) {
  require(static_cast<bool>(options.model),
          "there is no model: TrainerOptions::model is empty; it is a function of a tower and one "
          "Output per field of the data");
  require(options.optimizer || !options.losses.empty(),
          "no optimizer was given: TrainerOptions::optimizer is empty; e.g. sgd(0.1)");
  check_losses_of(options, kind);
  require(kind.combine || kind.update,
          "this trainer has neither TrainerKind::combine nor TrainerKind::update");
  require(!kind.takes_one_device || options.devices.size() == 1, "the trainer ", kind.name,
          " takes one device, not ", options.devices.size());
  require_option(!kind.takes_async() || options.async == "ordered" || options.async == "free",
                 "async", "=", options.async, " is neither ordered nor free");
  require_option(processes_of(options) == 1 || kind.spans_processes, "trainer", "=", kind.name,
                 " trains in one process, and this is one of ", processes_of(options),
                 "; use the trainer replicated");
  check_rows(options, kind);
  samples_of_step(options, processes_of(options));
  check_callbacks(options.callbacks, "TrainerOptions::callbacks");
  require(options.epochs >= 0 && options.max_steps >= 0, "training cannot take ", options.epochs,
          " epochs and at most ", options.max_steps, " steps (0: no limit)");
  require(options.aggregation.allreduce != "auto" || kind.choose,
          "this trainer cannot choose: allreduce=auto needs a TrainerKind::choose");
  check_factor(options);
}

namespace {

// `what`: "test data".
void check_tested(const Dataset& train, const Dataset& test, const std::string& what,
                  bool dry_run) {
  const std::vector<Dataset::Field> fields = train.signature(), tested = test.signature();
  if (test.is_stream())  // a dry run must not ask data to describe themselves
    throw InvalidArgument(cat("the ", what, " (", test.describe(),
                              ") are a stream; an evaluation takes data of a known size"));
  require(tested == fields, "the ", what, " have the fields ", fields_text(tested),
          ", the training data have ", fields_text(fields),
          "; one model takes both, so they need the same fields in the same order");
  if (dry_run) return;
  require(checked_size(test, what.c_str()) > 0, "the ", what, " (", test.describe(),
          ") have no samples; give none at all (null) to train without");
}

bool is_word(const std::string& name) {
  const auto is_of_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && std::ranges::all_of(name, is_of_word);
}

}  // namespace

void check_stream(const TrainerOptions& options, const TrainerKind& kind) {
  require_option<OptionMistake>(
      options.max_steps > 0, "max_steps",
      "=0: the training data are a stream, and nobody knows how long it is; say how many steps to "
      "make");
  require_option<TrainerMistake>(
      !kind.runs_free(options), "async",
      "=free: towers that run free would take records of a stream in no order; use ordered");
}

void check_data(const Dataset& train, const Dataset* test, bool dry_run) {
  check_fields(train.signature(), "training data");
  if (test) check_tested(train, *test, "test data", dry_run);
}

void check_validation(const Dataset& train, std::span<const ValidationSet> sets, bool dry_run) {
  std::set<std::string> names;
  for (const ValidationSet& set : sets) {
    require(is_word(set.name), "a validation set is called '", shown(set.name),
            "'; names have letters, digits and _, as they are parts of names of metrics");
    require(names.insert(set.name).second, "two validation sets are called '", set.name, "'");
    require(set.data != nullptr, "the validation set '", set.name, "' has no data");
    check_tested(train, *set.data, cat("data of the validation set '", set.name, "'"), dry_run);
  }
}

}  // namespace belfry
