// The results of a training program, for people and for other programs.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/program/common_fields.h"

namespace belfry {

// Each part adds its members to the JSON, one per field.
struct Report {
  std::string program;
  JsonValue flags = JsonValue::object();    // the recipe's own
  JsonValue options = JsonValue::object();  // the options of rows, by name; each becomes a member
  std::vector<DeviceSpec> devices;          // of all processes
  std::vector<std::string> hosts = {};      // of each process; empty for one that runs alone
  int threads = 0;
  std::map<std::string, std::int64_t> peak_bytes;  // by full name of the device
  ProcessMemory memory;                            // a member per field
  JsonValue restart = {};  // how long it took, if `belfry run` has started the run again; else null

  // How gradients become an update.
  struct Update {
    std::string allreduce_requested;  // "auto" if it was chosen, else that of `options`
    // Optimizer::kind(), or the name of a program's own; "" if nothing is trained
    std::string optimizer;
    JsonValue optimizer_options = JsonValue::object();  // Optimizer::options(), by name
    std::string learning_rate;                          // LearningRate::str()
    double weight_decay = 0;
    std::string groups;  // text_of_groups() those of the optimizer; the member is "group"
    // How each of several losses is trained; the members before it are of the first. The member is
    // absent if there is one.
    JsonValue losses = JsonValue::array();
    // Whether this trainer and strategy give, for this number of devices, the bits of the canonical
    // sum, and so of all other canonical ones. None if nothing is trained.
    std::optional<bool> canonical = {};

    void add_to(JsonValue& json) const;
  } update;

  struct Batches {
    std::int64_t global_batch_size = 0;
    // The result of k_dependence(): the JSON member k_dependent_because. The member k_independent
    // is true if it is "". None if nothing is trained: then both are null.
    std::optional<std::string> k_dependent_because;
    // Metrics of the model whose values depend on the number of devices even if the bits of the
    // weights do not (metrics_by_devices()). The JSON member is metrics_depend_on_devices. None if
    // nothing is trained.
    std::optional<std::vector<std::string>> device_metrics;

    void add_to(JsonValue& json) const;
  } batches;

  // Bad records of training and test data that this process has left out.
  std::int64_t left_out = 0;

  struct Progress {
    std::int64_t steps = 0;  // complete
    int epochs = 0;          // complete
    // From the start of the process until data are loaded, steps are planned, and variables have
    // their first values. A checkpoint is restored after that.
    double startup_seconds = 0;
    // From the end of loading data to the end of training, with its last evaluation and checkpoint.
    double seconds = 0;
    TrainingSpeed speed;

    void add_to(JsonValue& json) const;
  } progress;

  struct Losses {
    std::optional<double> loss;  // of the last step, mean over towers; none if no step ran
    // Members first_nonfinite_step (Divergence::loss_since) and nonfinite_variable.
    Divergence divergence;
    std::optional<double> validation_loss, validation_accuracy;  // of the last test; a fraction
    bool has_accuracy = false;  // the model has this metric; else there is no validation_accuracy
    // All metrics by name, including these: of the last step, then of the last test and of
    // callbacks.
    std::vector<NamedValue> metrics;
    std::optional<double> scale;          // member loss_scale, for f16
    std::optional<std::int64_t> skipped;  // skipped_steps, for f16 or if options ask to skip

    void add_to(JsonValue& json) const;
    void add_scale_to(JsonValue& json) const;
  } losses;

  struct Variables {
    std::string params_hash, state_hash;  // "" for both, and none: not known
    std::optional<bool> replicas_equal;
    std::optional<int> replicas_shared;  // copies that lie in the storage of another

    void add_to(JsonValue& json) const;
  } variables;
};

// One JSON object with a member per field above, without the groups; `flags` is an object. Values
// that do not exist (allreduce, allreduce_requested, async, tower_weights, loss_scale,
// skipped_steps, loss, first_nonfinite_step, nonfinite_variable, validation_loss,
// validation_accuracy before a test, tokens_per_second, mfu, communication_hidden_share,
// k_dependent_because) are null; a model without `accuracy` has no validation_accuracy. So are
// values that are not known (params_hash, state_hash, replicas_equal, replicas_shared of a run that
// failed), and numbers that are not finite. `metrics` is an object.
JsonValue to_json(const Report& report);

// A table that closes a program's output.
std::string to_table(const Report& report);

}  // namespace belfry
