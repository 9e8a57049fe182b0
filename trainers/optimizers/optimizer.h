// Optimizers: how gradients change variables.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/trainers/optimizers/variable_groups.h"
#include "belfry/trainers/optimizers/weight_averages.h"
#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

class GradientTable;

// Whether an optimizer makes the variables that it keeps, or takes those of an earlier update of
// the same variables. No step runs both updates.
enum class OptimizerSlots { kMake, kReuse };

// Collection of the scalar placeholders through which schedules reach the graph. Whoever runs the
// graph feeds them LearningRate::at() of each step.
inline constexpr std::string_view kLearningRates = "learning_rates";

// How several updates of the same variables follow each other.
enum class UpdateOrder {
  kOneByOne,  // each update of a variable waits for the one before: they may be parts of one run
  kFree,      // nothing orders them: each is for runs of its own
};

// The parts that one process updates, where each process updates a part of every variable.
struct UpdatedParts {
  // One for each variable, in the order of gradients.
  std::vector<VariablePart> parts;
  // Returns the norms of tensors that are cut as variable i is. `rows` has this process's part of
  // each tensor. Only norms of replicas of one variable are asked for twice.
  std::function<std::vector<Output>(std::size_t i, std::span<const Output> rows)> norms;
  // Called with a node per variable, which has updated the part of this process in place. Returns a
  // node per variable, which has written the parts of all processes.
  std::function<std::vector<Node*>(std::span<Node* const>)> gather;
};

// A value: copies are equal. The same optimizer may serve several graphs.
class Optimizer {
 public:
  // The arguments of Rule::update: one variable, and what its update is built from.
  struct Update {
    Variable variable;
    std::span<const Variable> slots;  // one per Rule::slots
    Output gradient;
    Output factor;  // by which the gradient is multiplied (ScaledGradient); empty: 1
    Output rate;    // scalar of the variable's dtype, times the rate of its group
    // i64 scalar, 1 in the first update that is not skipped; empty unless the rule counts steps.
    Output step;
    double weight_decay;  // that of its group, or Rule::weight_decay
    // 0: the whole variable is updated. Else slots and gradient are rows of a part of it, which
    // begins with this element, counted from 1. Only a rule that takes_parts gets such. Its ops
    // have it among their options as a PartFrom, which is in no fingerprint of a run.
    std::int64_t part_from;
    // Returns the norms (f64 scalars) of tensors like the gradient. Where that is a row of a part,
    // the norms are those of the whole tensors. To be called at most once.
    std::function<std::vector<Output>(std::span<const Output>)> norms;
    At at;
  };
  struct Rule {
    std::string name;  // names scopes, the step counter and, by convention, slots
    LearningRate rate = 0;
    std::vector<std::string> slots = {};  // each a variable "<variable>/<slot>", zeros at first
    bool counts_steps = false;
    // Heeds Update::factor: multiplies the gradient by it and, where it is 0, writes nothing.
    bool takes_loss_scale = false;
    // Heeds Update::weight_decay, by which weights shrink in proportion to themselves.
    bool takes_weight_decay = false;
    double weight_decay = 0;
    // Whose weight decay stands in the place of weight_decay where with_groups() gives none.
    std::vector<VariableGroup> groups = {};
    // Heeds Update::part_from: element i of a variable changes by element i of gradient and slots
    // alone, and by Update::norms.
    bool takes_parts = false;
    // Returns a node that waits for all that it adds. If it needs the variable's value it asks
    // Variable::read(), which sees what updates before it have written.
    std::function<Node&(const Update&)> update;
  };

  Optimizer() = default;  // none; apply() throws
  explicit Optimizer(Rule rule) : rule_(std::move(rule)) {}

  // Whether there is a rule with an update.
  explicit operator bool() const { return static_cast<bool>(rule_.update); }
  const LearningRate& rate() const { return rule_.rate; }
  const std::optional<WeightAverages>& averages() const { return averages_; }
  const std::vector<VariableGroup>& groups() const { return groups_; }
  const std::string& name() const { return rule_.name; }
  // Whether it can apply gradients of a scaled loss (Rule::takes_loss_scale).
  bool takes_loss_scale() const { return rule_.takes_loss_scale; }
  // Whether it can update parts of variables (Rule::takes_parts).
  bool takes_parts() const { return rule_.takes_parts; }
  double weight_decay() const { return rule_.weight_decay; }
  // The same rule with another rate.
  Optimizer with_rate(LearningRate rate) const;
  // The same rule with another weight decay, 0 for none. Throws InvalidArgument for a rule that
  // takes none (Rule::takes_weight_decay), and unless it is finite and at least 0.
  Optimizer with_weight_decay(double weight_decay) const;
  // The same rule with groups of variables, in the place of those that it had. Updates heed their
  // rates and weight decays. A Trainer freezes those that say so; around the model of another
  // program stands a VariableScope with a FreezingGetter. Throws InvalidArgument as check_groups()
  // does, and for a weight decay that the rule does not take.
  Optimizer with_groups(std::vector<VariableGroup> groups) const;
  // The same rule, whose updates move the averages of what they update, too (weight_averages.h).
  // Throws as check_averages() does.
  Optimizer with_averages(WeightAverages averages) const;

  // Adds the update of each variable by its gradient and returns one node that waits for all, which
  // it lists in the collection kTrainOp. Its name is At's, made unique, or "apply_gradients" (in
  // TensorFlow the optimizer's name); what it is made of is named below it. Variables whose
  // gradient is empty are skipped.
  //
  // Slots and updates lie beside their variables, whatever the scopes and setters around the call,
  // which place the constant learning rate alone. (In TensorFlow a variable without a device
  // follows the call's scope, and slots count as load for setters.) Slots are not trainable and
  // ignore control dependencies. They are named "<variable>/<slot>", without the variable scope of
  // the call and never made unique, as names are keys of checkpoints. Those of a replica are local
  // copies of tower 0's. A rule that counts steps gets one counter "<name>/step" per call (per
  // replica). It moves once per run of the update, whatever the number of variables and towers, but
  // not in those that `unscaling` skips.
  //
  // Throws InvalidArgument "No variables provided." for an empty list and "No gradients provided
  // for any variable: [...]" if all are empty; for a rate that is negative or not finite, and if a
  // variable has slots of this name already and they are not to be reused; and for an `unscaling`
  // that the rule does not heed; and for a gradient of a variable that a group freezes.
  Node& apply(std::span<const Gradient> gradients, At at = {},
              OptimizerSlots slots = OptimizerSlots::kMake, const Unscaling& unscaling = {}) const;

  // As apply(), where each process updates parts of variables: gradients are the rows of the parts
  // of this process, and slots are as long. Throws InvalidArgument as apply() does, for a rule that
  // takes no parts, and unless each of parts.parts has a gradient.
  Node& apply_parts(std::span<const Gradient> gradients, const UpdatedParts& parts, At at = {},
                    OptimizerSlots slots = OptimizerSlots::kMake,
                    const Unscaling& unscaling = {}) const;

  // Several updates of the same variables, one per row of gradients: as apply() each, but with one
  // set of slots, and one counter that moves once per update. Returns a node per row. Gradients
  // that read variables in the usual way, Output(v), see the values before the first update. At's
  // name is that of the first node; the others get suffixes.
  std::vector<Node*> apply_each(std::span<const std::vector<Gradient>> rows, UpdateOrder order,
                                At at = {}, OptimizerSlots slots = OptimizerSlots::kMake,
                                const Unscaling& unscaling = {}) const;

 private:
  struct Shared;
  // Checks that the rule can make such updates.
  Shared begin(UpdateOrder order, OptimizerSlots slots, const Unscaling& unscaling,
               SourceLine site) const;
  Node& apply_row(std::span<const Gradient> row, Shared& shared, At at) const;
  Node& update(const Gradient& gradient, std::size_t i, Output step, Shared& shared, At at) const;
  void begin_averages(const std::vector<Gradient>& gradients, Shared& shared, At at) const;
  Node& average(Variable variable, Node& update, Shared& shared, At at) const;

  double weight_decay_of(Variable variable) const;

  Rule rule_;
  std::vector<VariableGroup> groups_;
  std::optional<WeightAverages> averages_;
};

// The weight decay of sgd, momentum and rms_prop is added to the gradient of every variable, as
// PyTorch does: g is gradient + weight_decay * w.

struct SgdOptions {
  double weight_decay = 0;
};

// w -= rate * g.
Optimizer sgd(LearningRate rate, SgdOptions options = {});

struct MomentumOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
};

// m = momentum * m + g;  w -= rate * m, or rate * (g + momentum * m) (momentum_update.h). Slot
// "Momentum".
Optimizer momentum(LearningRate rate, MomentumOptions options);
Optimizer momentum(LearningRate rate, double momentum = 0.9);

struct RmsPropOptions {
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;
  double weight_decay = 0;
};

// RMSprop in PyTorch's form (rms_prop_update.h). Slots "RMSProp" (mean square) and "RMSProp_1"
// (sum), also without momentum.
Optimizer rms_prop(LearningRate rate, RmsPropOptions options = {});

struct AdamOptions {
  LearningRate rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  std::string name = "Adam";  // two optimizers of one graph need two names
};

// Adam in TensorFlow's form (adam_update.h). Slots "<name>" (m) and "<name>_1" (v).
Optimizer adam(AdamOptions options = {});
// Takes no weight decay; adamw() does.
Optimizer adam(double rate);

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
};

// AdamW in PyTorch's form (adam_update.h): before each step of Adam w -= rate * weight_decay * w.
// Its group "*:most_rank=1,weight_decay=0" spares variables of rank 0 and 1, such as biases and the
// gains of norms. Slots "AdamW" (m) and "AdamW_1" (v).
Optimizer adamw(LearningRate rate, AdamWOptions options = {});

struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double weight_decay = 0.01;
};

// LAMB, for large batches (You et al. 2020): u is a step of Adam, with corrected moments, plus
// weight_decay * w, with the group of adamw(); w -= rate * norm(w) / norm(u) * u. Each
// variable has a ratio of its own (trust_ratio.h), of norms whose bits do not depend on devices
// (global_norm.h). Slots "LAMB" (m), "LAMB_1" (v) and "LAMB_2" (the step of Adam, negative).
Optimizer lamb(LearningRate rate, LambOptions options = {});

// Calls `apply` with each tower of the table and the name of its update; with tower 0 alone if all
// towers share their variables. Devices and names are those of apply_gradients().
Node& apply_to_towers(const GradientTable& gradients, At at,
                      const std::function<Node&(int, At)>& apply);

// Applies a table of combined gradients: once per tower, on the tower's device, if each has its own
// variables; once if all towers share them. Returns one node that waits for all updates, named as
// At says, or "train_op". Those of towers with variables of their own are called
// <name>/apply_gradients, tower1/<name>/apply_gradients and so on.
Node& apply_gradients(const Optimizer& optimizer, const GradientTable& gradients, At at = {},
                      OptimizerSlots slots = OptimizerSlots::kMake,
                      const Unscaling& unscaling = {});

}  // namespace belfry
