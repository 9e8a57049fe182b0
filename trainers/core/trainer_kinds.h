// The trainers that --trainer can name.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_nodes.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry {

struct TrainerFacts;

// A way to train: where variables live, how the gradients of the towers change them, and
// which options it takes. To add one, register it from its own file
// (trainers/kinds/parameter_server.cc is an example).
struct TrainerKind {
  std::string name;
  std::string summary;  // for --help
  // kSpread takes --parameter_device, and kReplicated --share_replicas=1.
  VariablePolicy variables = VariablePolicy::kOnOneDevice;
  bool takes_one_device = false;      // and no more
  std::string default_strategy = {};  // of --allreduce; "" if the trainer takes none
  // Whether the trainer can combine gradients by `spec`, a well-formed AllReduceSpec.
  bool (*accepts)(std::string_view spec) = nullptr;
  // Called once, before `combine`. Makes the choices that the options leave open
  // (--allreduce=auto), and refuses gradients that cannot be packed as requested. Returns lines
  // about its choices for people; "" if there was nothing to choose.
  std::function<std::string(TrainerOptions&, const GradientTable&)> choose = {};
  // Combines the towers' gradients as ReduceOptions say. Called once for each form of batches; all
  // forms in which towers have equal weights share one call. The results are then clipped and
  // applied (build_training_graph()). Such kinds take --uneven=pad, --uneven=weight,
  // --tower_weights, --clip_norm, --clip_value and --gradient_accumulation_steps.
  std::function<GradientTable(const TrainerOptions&, const GradientTable&, const ReduceOptions&)>
      combine = {};
  // Whether `combine` is linear in the gradients. If not, f16 is refused, whose loss scale
  // multiplies them before `combine`, and divides its results.
  bool linear = true;
  // Used instead of `combine` by kinds whose towers update with their own gradients. Returns the
  // nodes that make all these updates, as UpdateOptions say, including UpdateOptions::unscaling
  // (--precision=f16). Replicas must be equal after each step, because checkpoints keep one copy.
  std::function<UpdateNodes(const TrainerOptions&, const GradientTable&, const UpdateOptions&)>
      update = {};
  // Whether `update` also returns nodes for the batches before the last
  // (UpdateNodes::accumulation). Such kinds take --gradient_accumulation_steps.
  bool updates_between = false;
  // In addition to `update`, for --async=free: makes a node for each tower, which runs
  // independently of the others.
  std::function<std::vector<Node*>(const TrainerOptions&, const GradientTable&)> update_free = {};
  bool packs_gradients = false;  // takes --gradient_repacking and --small_tensors_kb
  bool makes_buckets = false;    // takes --bucket_mb
  // Whether `combine` combines the gradients of all processes (Strategy::refusal_of_processes).
  // Other kinds train in one process only.
  bool spans_processes = false;
  // Takes --zero_stage: the trainer then combines by update_parts().
  bool takes_partition = false;
  // Whether, with a canonical strategy, its results are those of one tower with the whole batch. If
  // false, the trainer is canonical with no strategy.
  bool canonical = false;
  // Options that only this trainer has. They are flags of every program that trains, so no other
  // option may have their names.
  std::vector<OwnOption> options = {};

  TrainerFacts facts() const;
  bool spreads_variables() const { return variables == VariablePolicy::kSpread; }
  bool replicates_variables() const { return variables == VariablePolicy::kReplicated; }
  bool combines() const { return static_cast<bool>(combine); }
  bool takes_async() const { return static_cast<bool>(update_free); }
  // Whether towers run independently of each other with these options (--async=free).
  bool runs_free(const TrainerOptions& made) const { return takes_async() && made.async == "free"; }
};

// "the trainer local's option": how errors about its own options begin.
std::string whose_option(const TrainerKind& kind);

// Throws InvalidArgument if the name is taken or the fields contradict each other.
void register_trainer(TrainerKind kind);
// Sorted by name.
std::vector<std::string> trainer_names();
// Throws InvalidArgument with all names and the nearest one. trainers/kinds/README.md describes the
// trainers of the library.
const TrainerKind& find_trainer(std::string_view name);

// The names of the registered strategies that a trainer accepts (TrainerKind::accepts).
std::vector<std::string> accepted_strategies(bool (*accepts)(std::string_view spec));

// Registers a trainer when the program starts.
struct TrainerRegistration {
  explicit TrainerRegistration(TrainerKind kind) { register_trainer(std::move(kind)); }
};

}  // namespace belfry
