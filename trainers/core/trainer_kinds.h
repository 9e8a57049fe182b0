// The trainers that --trainer can name.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/trainer.h"

namespace belfry {

// A way to train: where variables live, how the gradients of the towers become one node that
// updates them all, and which options it takes. To add one, register it from its own file
// (trainers/kinds/parameter_server.cc is an example).
struct TrainerKind {
  std::string name;
  std::string summary;  // for --help
  // kSpread takes --parameter_device, and kReplicated --fuse_updates=1 and --share_replicas=1.
  VariablePolicy variables = VariablePolicy::kOnOneDevice;
  bool takes_one_device = false;      // and no more
  std::string default_strategy = {};  // of --allreduce; "" if the trainer takes none
  // Whether it can combine gradients as a spec says; asked only of specs that are well formed.
  bool (*accepts)(std::string_view spec) = nullptr;
  // Called before `update`: makes choices that the options leave open (--allreduce=auto). Returns
  // lines about them for people; "" if none was left.
  std::function<std::string(TrainerOptions&, const GradientTable&)> choose = {};
  // Called once per form of steps; the first makes the optimizer's slots.
  std::function<Node&(const TrainerOptions&, const GradientTable&, const UpdateForm&)> update;
  // With --async=free, which trainers without it do not take: a node per tower, for towers that run
  // free of each other.
  std::function<std::vector<Node*>(const TrainerOptions&, const GradientTable&)> update_apart = {};
  bool packs_gradients = false;  // takes --gradient_repacking and --small_tensors_kb
  bool makes_buckets = false;    // takes --bucket_mb
  // `update` heeds UpdateForm's weights and slots: takes --uneven=pad, --uneven=weight and
  // --tower_weights.
  bool takes_unequal_batches = false;
  bool takes_sums = false;        // `update` heeds UpdateForm::reduction
  bool takes_loss_scale = false;  // `update` heeds UpdateForm::unscaling: takes --precision=f16
  bool takes_clip_norm = false;   // `update` heeds TrainerOptions::clip_norm
  // `update` fills UpdateForm::accumulation, as apply_combined() does: takes
  // --gradient_accumulation_steps.
  bool takes_accumulation = false;
  bool takes_partition = false;  // `update` heeds AggregationOptions::partition_updates
  // Whether its results are those of one tower with the whole batch, if the strategy's are: else it
  // is canonical for no strategy.
  bool canonical = false;

  bool spreads_variables() const { return variables == VariablePolicy::kSpread; }
  bool replicates_variables() const { return variables == VariablePolicy::kReplicated; }
  bool takes_async() const { return static_cast<bool>(update_apart); }
};

// Throws InvalidArgument if the name is taken or the fields contradict each other.
void register_trainer(TrainerKind kind);
// Sorted by name.
std::vector<std::string> trainer_names();
// Throws InvalidArgument with all names and the nearest one. There are:
//
// simple: one tower, no combination of gradients.
//
// replicated: each tower has its own copy of all variables. `allreduce`, which may be "auto",
// combines the gradients, packed as `gradient_repacking` or `small_tensors_kb` says, in buckets of
// `bucket_mb`, and every tower updates its copy.
//
// parameter_server: one copy of each variable, spread over the towers' devices by
// LeastLoadedDeviceSetter. The gradients are combined, and the variable updated, where the variable
// is.
//
// async: variables as of parameter_server. Gradients are not combined: each tower updates the
// variables by its own, divided by the number of towers K. Optimizer state, and Adam's count of
// steps, advance K times a step. It refuses layers that are synchronised over towers.
//
// async "ordered": a step computes all towers' gradients at the values before it, and then makes K
// updates in the order of the towers. It gives the bits of K sequential updates by these gradients.
// (Upstream nothing orders them.)
//
// async "free": a thread and a plan per tower, each over its own share of the samples, with no
// barrier between towers; a tower reads what others have written by then
// (LockDuration::kEachVariable). No two runs need give the same bits. Batch norm's averages move by
// each tower's own moments. Session::step() counts tower steps; `threads` counts for evaluation
// alone.
//
// What callbacks, the report and checkpoints call a step is then any K tower steps, in the order in
// which they end, and metrics are the means over these; towers need not be at the same sample. A
// schedule's rate holds for tower steps that begin after it was asked for. Callbacks are called on
// the thread of train() as ever, while towers go on; but during those of epochs, and of the end,
// all towers are at rest, after K * steps() tower steps. stop() leaves up to K tower steps that had
// begun uncounted. A resumed run starts all towers at the position, which some may have passed and
// others not have reached. The error of a tower stops the others before their next step.
const TrainerKind& find_trainer(std::string_view name);

// The names of the registered strategies that a trainer accepts (TrainerKind::accepts).
std::vector<std::string> accepted_strategies(bool (*accepts)(std::string_view spec));

// Registers a trainer when the program starts.
struct TrainerRegistration {
  explicit TrainerRegistration(TrainerKind kind) { register_trainer(std::move(kind)); }
};

}  // namespace belfry
