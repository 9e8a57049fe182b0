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
  // Whether it can combine gradients as a spec says; asked only of specs that are well formed.
  bool (*accepts)(std::string_view spec) = nullptr;
  // Called once, before `combine`: makes choices that the options leave open (--allreduce=auto),
  // and refuses gradients that cannot be packed as asked for. Returns lines about the choices for
  // people; "" if none was left.
  std::function<std::string(TrainerOptions&, const GradientTable&)> choose = {};
  // Combines the towers' gradients, as ReduceOptions ask for. Called for each form of batches,
  // but once for all in which towers count alike. The results are then clipped and applied
  // (build_training_graph()). Such kinds take --uneven=pad, --uneven=weight, --tower_weights,
  // --clip_norm, --clip_value and --gradient_accumulation_steps.
  std::function<GradientTable(const TrainerOptions&, const GradientTable&, const ReduceOptions&)>
      combine = {};
  // Instead of `combine`, for kinds whose towers update by their own gradients: the nodes that make
  // all these updates, as UpdateOptions ask for. They heed UpdateOptions::unscaling
  // (--precision=f16). Replicas must be equal after each step, since checkpoints keep one copy.
  std::function<UpdateNodes(const TrainerOptions&, const GradientTable&, const UpdateOptions&)>
      update = {};
  // `update` gives nodes for the batches before the last, too (UpdateNodes::accumulation). Such
  // kinds take --gradient_accumulation_steps.
  bool updates_between = false;
  // Beside `update`, for --async=free: a node per tower, for towers that run free of each other.
  std::function<std::vector<Node*>(const TrainerOptions&, const GradientTable&)> update_free = {};
  bool packs_gradients = false;  // takes --gradient_repacking and --small_tensors_kb
  bool makes_buckets = false;    // takes --bucket_mb
  // `combine` combines the gradients of all processes (Strategy::refusal_of_processes). Other kinds
  // train in one.
  bool spans_processes = false;
  // Takes --zero_stage: the trainer then combines by update_parts().
  bool takes_partition = false;
  // Whether its results are those of one tower with the whole batch, if the strategy's are: else it
  // is canonical for no strategy.
  bool canonical = false;
  // Options of this trainer alone: flags of every program that trains. Their names are no other
  // option's.
  std::vector<OwnOption> options = {};

  TrainerFacts facts() const;
  bool spreads_variables() const { return variables == VariablePolicy::kSpread; }
  bool replicates_variables() const { return variables == VariablePolicy::kReplicated; }
  bool combines() const { return static_cast<bool>(combine); }
  bool takes_async() const { return static_cast<bool>(update_free); }
  // Whether towers run free of each other with these options.
  bool runs_free(const TrainerOptions& made) const { return takes_async() && made.async == "free"; }
};

// "the trainer local's option": how errors begin that are about its own options.
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
