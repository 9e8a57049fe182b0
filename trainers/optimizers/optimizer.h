// Optimizers: how gradients change variables.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/trainers/optimizers/variable_groups.h"
#include "belfry/trainers/optimizers/weight_averages.h"
#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

class GradientTable;

// Whether an optimizer makes its slots, or reuses those of an earlier update of the same variables.
// No step runs both updates.
enum class OptimizerSlots { kMake, kReuse };

// Collection of the scalar placeholders through which schedules reach the graph. Whoever runs the
// graph feeds them LearningRate::at() of each step.
inline constexpr std::string_view kLearningRates = "learning_rates";

// How several updates of the same variables follow each other.
enum class UpdateOrder {
  kOneByOne,  // each update of a variable waits for the one before: they may be parts of one run
  kFree,      // nothing orders them: they never belong to the same run
};

// The parts of variables that this process updates, if each process updates a part of every
// variable.
struct UpdatedParts {
  // One for each variable, in the order of gradients.
  std::vector<VariablePart> parts;
  // Returns the norms of tensors that are cut as variable i is. `rows` has this process's part of
  // each tensor. Called once per variable, or once per replica of it.
  std::function<std::vector<Output>(std::size_t i, std::span<const Output> rows)> norms;
  // Takes a node per variable, which updates this process's part in place. Returns a node per
  // variable, after which the parts of all processes are written.
  std::function<std::vector<Node*>(std::span<Node* const>)> gather;
};

// How weights decay: the gradient grows by decay * w, as if the loss had a penalty of
// decay / 2 * w^2; or w shrinks by rate * decay * w, and the gradient stays (Loshchilov and Hutter
// 2019). In plain gradient descent both are the same.
enum class DecayForm { kCoupled, kDecoupled };

// A number of an optimizer, such as beta1.
struct OptimizerOption {
  std::string name;
  double value;  // 0 or 1 for a switch, such as nesterov
};

// A value type: copies are equal. The same optimizer may be used in several graphs.
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
    double weight_decay;   // that of its group, or Rule::weight_decay
    DecayForm decay_form;  // Rule::decay_form
    // 0: the whole variable is updated. Otherwise slots and gradient are rows for a part of it, and
    // this is the number of the part's first element, counted from 1. Only a rule with takes_parts
    // gets parts. Its ops have the number as an option of type PartFrom, which fingerprints of runs
    // leave out.
    std::int64_t part_from;
    // Returns the norms (f64 scalars) of tensors like the gradient. If the gradient is a row of a
    // part, the norms are those of the whole tensors. Call it at most once.
    std::function<std::vector<Output>(std::span<const Output>)> norms;
    At at;

    // The weight decay if it has that form, else 0.
    double coupled_decay() const { return decay_form == DecayForm::kCoupled ? weight_decay : 0; }
    double decoupled_decay() const { return weight_decay - coupled_decay(); }
  };
  struct Rule {
    std::string name;  // names scopes, the step counter and, by convention, slots
    LearningRate rate = 0;
    std::vector<std::string> slots = {};  // each a variable "<variable>/<slot>", zeros at first
    bool counts_steps = false;
    // The rule uses Update::factor: it multiplies the gradient by it and, if it is 0, writes
    // nothing.
    bool takes_loss_scale = false;
    // The rule uses Update::weight_decay, by which weights shrink in proportion to themselves.
    bool takes_weight_decay = false;
    double weight_decay = 0;
    // Groups whose weight decay replaces weight_decay where those of with_groups() have none.
    std::vector<VariableGroup> groups = {};
    // The rule uses Update::decay_form. Otherwise weight decay has this form, or one of its own.
    bool takes_decay_form = false;
    DecayForm decay_form = DecayForm::kCoupled;
    // The rule uses Update::part_from: the new element i of a variable depends only on element i of
    // variable, gradient and slots, and on Update::norms.
    bool takes_parts = false;
    // Adds the nodes of the update, and returns one that waits for all of them. If it needs the
    // variable's value, it calls Variable::read(), which sees what earlier updates have written.
    std::function<Node&(const Update&)> update;
    // What make_optimizer() calls it; "" for a rule of a program.
    std::string kind = {};
    // Its numbers besides rate and weight decay. `with` returns the optimizer with another value of
    // one of them, at any rate.
    std::vector<OptimizerOption> options = {};
    std::function<Optimizer(std::string_view option, double value)> with = {};
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
  DecayForm decay_form() const { return rule_.decay_form; }
  // Rule::kind and Rule::options.
  const std::string& kind() const { return rule_.kind; }
  const std::vector<OptimizerOption>& options() const { return rule_.options; }
  // The same rule with another rate.
  Optimizer with_rate(LearningRate rate) const;
  // The same rule with another weight decay, 0 for none. Throws InvalidArgument for a rule that
  // takes none (Rule::takes_weight_decay), and unless it is finite and at least 0.
  Optimizer with_weight_decay(double weight_decay) const;
  // The same rule with its weight decay in another form. Throws InvalidArgument if the rule has
  // only one form (Rule::takes_decay_form).
  Optimizer with_decay_form(DecayForm form) const;
  // The same rule with another value of one of options(). Throws InvalidArgument if it has no such
  // option, or cannot have this value, as the functions below do.
  Optimizer with_option(std::string_view name, double value) const;
  // The same rule with these groups of variables, instead of those that it had. Updates use their
  // rates and weight decays. A Trainer freezes those that say so; other programs build the model in
  // a VariableScope with a FreezingGetter. Throws InvalidArgument as check_groups() does, and for a
  // weight decay that the rule does not take.
  Optimizer with_groups(std::vector<VariableGroup> groups) const;
  // The same rule, whose counters and fed rates are named below a scope, "" for none: each of
  // several optimizers of one graph needs its own.
  Optimizer with_scope(std::string scope) const;
  // The same rule, whose updates also move the averages of the updated variables
  // (weight_averages.h). Throws as check_averages() does.
  Optimizer with_averages(WeightAverages averages) const;

  // Adds the update of each variable by its gradient and returns one node that waits for all, which
  // it lists in the collection kTrainOp. Its name is At's, made unique, or "apply_gradients" (in
  // TensorFlow the optimizer's name); the other nodes have names below it. Variables whose gradient
  // is empty are skipped.
  //
  // Slots and updates are on the devices of their variables. Scopes and setters around the call
  // place only the constant learning rate. (In TensorFlow a variable without a device follows the
  // call's scope, and slots count as load for setters.) Slots are not trainable and ignore control
  // dependencies. They are named "<variable>/<slot>", without the variable scope of the call and
  // never made unique, as names are keys of checkpoints. Those of a replica are local copies of
  // tower 0's. A rule that counts steps gets one counter "<name>/step" per call (per replica). It
  // moves once per run of the update, whatever the number of variables and towers, but not in those
  // that `unscaling` skips.
  //
  // Throws InvalidArgument "No variables provided." for an empty list and "No gradients provided
  // for any variable: [...]" if all are empty; for a rate that is negative or not finite, and if a
  // variable has slots of this name already and they are not to be reused; and for an `unscaling`
  // if the rule does not take one, or for a gradient of a variable that a group freezes.
  Node& apply(std::span<const Gradient> gradients, At at = {},
              OptimizerSlots slots = OptimizerSlots::kMake, const Unscaling& unscaling = {}) const;

  // Like apply(), if each process updates parts of variables: gradients are rows for the parts of
  // this process, and slots have the same lengths. Throws InvalidArgument as apply() does, for a
  // rule that takes no parts, and unless each of parts.parts has a gradient.
  Node& apply_parts(std::span<const Gradient> gradients, const UpdatedParts& parts, At at = {},
                    OptimizerSlots slots = OptimizerSlots::kMake,
                    const Unscaling& unscaling = {}) const;

  // Several updates of the same variables, one per row of gradients. Each is like apply(), but they
  // share the slots and one counter, which each update increments. Returns a node per row.
  // Gradients that read variables in the usual way, Output(v), see the values before the first
  // update. At's name is that of the first node; the others get suffixes.
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
  // The name of a counter or rate.
  std::string scoped(const std::string& name) const;

  Rule rule_;
  std::string scope_;
  std::vector<VariableGroup> groups_;
  std::optional<WeightAverages> averages_;
};

// Momentum and betas are at least 0 and below 1, alpha at most 1, and epsilon is positive, but for
// that of lars, which may be 0; other values throw InvalidArgument.

// The weight decay of sgd, momentum, rms_prop, adagrad, adam and amsgrad is coupled, as in PyTorch:
// it is added to the gradient of every variable, so that g is gradient + weight_decay * w. That of
// adamw and lion is decoupled: w -= rate * weight_decay * w. Optimizer::with_decay_form() gives
// these optimizers the other form. lamb and lars have a form of their own. adamw, lion, lamb and
// lars leave variables of rank 0 and 1 alone, such as biases and the gains of norms.

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
// (sum, even if momentum is 0).
Optimizer rms_prop(LearningRate rate, RmsPropOptions options = {});

struct AdamOptions {
  LearningRate rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  std::string name = "Adam";  // two optimizers of one graph need two names
};

// Adam in TensorFlow's form (adam_update.h). Slots "<name>" (m) and "<name>_1" (v).
Optimizer adam(AdamOptions options = {});
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
// variable has its own ratio (trust_ratio.h), from norms whose bits do not depend on devices
// (global_norm.h). Slots "LAMB" (m), "LAMB_1" (v) and "LAMB_2" (the step of Adam, negative).
Optimizer lamb(LearningRate rate, LambOptions options = {});

struct AmsGradOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
};

// AMSGrad (Reddi et al. 2018) in the form of PyTorch's Adam with amsgrad (ams_grad_update.h): as
// Adam, but divides by the root of the largest v so far. With decoupled weight decay it is
// PyTorch's AdamW with amsgrad. Slots "AMSGrad" (m), "AMSGrad_1" (v) and "AMSGrad_2" (the largest
// v).
Optimizer amsgrad(LearningRate rate, AmsGradOptions options = {});

struct AdagradOptions {
  double epsilon = 1e-10;
  double weight_decay = 0;
};

// Adagrad (Duchi et al. 2011) in PyTorch's form: s += g^2; w -= rate * g / (sqrt(s) + epsilon). For
// a rate that falls, give it a schedule. Slot "Adagrad" (s).
Optimizer adagrad(LearningRate rate, AdagradOptions options = {});

struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

// Lion (Chen et al. 2023): w -= rate * sign(beta1 * m + (1 - beta1) * g), then
// m = beta2 * m + (1 - beta2) * g. Its rate is usually a third to a tenth of AdamW's, and its
// weight decay larger in proportion. Slot "Lion" (m).
Optimizer lion(LearningRate rate, LionOptions options = {});

struct LarsOptions {
  double momentum = 0.9;
  double trust_coefficient = 1e-3;
  double epsilon = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

// LARS, for large batches (You et al. 2017): momentum, where the gradient plus weight_decay * w is
// scaled by trust_coefficient * norm(w) / (norm(g) + weight_decay * norm(w) + epsilon), a ratio of
// each variable's own (lars_update.h). Variables of rank 0 and 1 are not scaled. The bits of the
// norms do not depend on devices (global_norm.h). Slot "LARS" (the sum).
Optimizer lars(LearningRate rate, LarsOptions options = {});

// The names of the optimizers above: "sgd", "momentum", "rms_prop" and so on.
std::vector<std::string> optimizer_names();

// The optimizer of that name with its usual options and rate: that of PyTorch's optimizer or of the
// paper. Throws InvalidArgument, with the names there are, for another name.
Optimizer make_optimizer(std::string_view name);

// Calls `apply` with each tower of the table and the name of its update; with tower 0 alone if all
// towers share their variables. Devices and names are those of apply_gradients().
Node& apply_to_towers(const GradientTable& gradients, At at,
                      const std::function<Node&(int, At)>& apply);

// Applies a table of combined gradients: once per tower, on the tower's device, if each has its own
// variables; once if all towers share them. Returns one node that waits for all updates, named as
// At says, or "train_op". If towers have separate variables, their updates are called
// <name>/apply_gradients, tower1/<name>/apply_gradients and so on.
Node& apply_gradients(const Optimizer& optimizer, const GradientTable& gradients, At at = {},
                      OptimizerSlots slots = OptimizerSlots::kMake,
                      const Unscaling& unscaling = {});

}  // namespace belfry
