#include <cmath>
#include <functional>
#include <utility>
#include <variant>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/ops/updates/trust_ratio.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {
namespace {

// Biases and the gains of norms do not decay.
const VariableGroup kSparesVectors{.pattern = "*", .weight_decay = 0, .most_rank = 1};

// What an update changes, as it was before.
Output updated_elements(const Optimizer::Update& u) {
  const Output whole = u.variable;
  if (u.part_from == 0) return whole;
  return slice(reshape(whole, {whole.shape().elements()}), {u.part_from - 1},
               {u.gradient.shape().elements()});
}

// LARS scales the updates of matrices and kernels alone.
bool is_matrix(const Optimizer::Update& u) { return u.variable.shape().rank() >= 2; }

// The update of adam() and adamw().
std::function<Node&(const Optimizer::Update&)> steps_of_adam(const AdamUpdateOptions& factors) {
  return [factors](const Optimizer::Update& u) -> Node& {
    AdamUpdateOptions own = factors;
    own.weight_decay = {u.weight_decay, u.decay_form == DecayForm::kCoupled};
    own.part_from = u.part_from;
    return adam_update(u.variable, u.slots[0], u.slots[1], u.step, {u.gradient, u.factor}, u.rate,
                       own, u.at);
  };
}

// The numbers that an option takes.
struct OptionRange {
  const char* wanted;
  bool (*has)(double);
};
constexpr OptionRange kShareOption{"a number >= 0 and below 1",
                                   [](double x) { return x >= 0 && x < 1; }},
    kShareOrAllOption{"a number >= 0 and at most 1", [](double x) { return x >= 0 && x <= 1; }},
    kPositiveOption{"a finite number > 0", [](double x) { return x > 0 && std::isfinite(x); }},
    kNotNegativeOption{"a finite number >= 0", [](double x) { return x >= 0 && std::isfinite(x); }},
    kSwitchOption{"0 or 1", [](double x) { return x == 0 || x == 1; }};

// An option of an optimizer, and its field of O.
template <class O>
struct NamedField {
  const char* name;
  std::variant<double O::*, bool O::*> field;
  const OptionRange& range;
};

template <class O>
void check_option(const std::string& optimizer, const NamedField<O>& named, double value) {
  require(named.range.has(value), "the option ", named.name, " of the optimizer ", optimizer,
          " must be ", named.range.wanted, ", not ", value);
}

// The optimizer of a rule that is made of `options`. `make` makes it of others.
template <class O>
Optimizer standard(const char* kind, Optimizer::Rule rule, const O& options,
                   std::vector<NamedField<O>> fields, Optimizer (*make)(const O&)) {
  rule.kind = kind;
  for (const NamedField<O>& named : fields)
    std::visit(
        [&](auto field) {
          const auto value = static_cast<double>(options.*field);
          check_option(rule.name, named, value);
          rule.options.push_back({named.name, value});
        },
        named.field);
  rule.with = [options, fields, make, optimizer = rule.name](std::string_view name, double value) {
    O changed = options;
    for (const NamedField<O>& named : fields) {
      if (named.name != name) continue;
      check_option(optimizer, named, value);  // a switch would become true
      std::visit([&]<class F>(F O::*field) { changed.*field = static_cast<F>(value); },
                 named.field);
    }
    return make(changed);
  };
  return Optimizer(std::move(rule));
}

}  // namespace

Optimizer sgd(LearningRate rate, SgdOptions options) {
  Optimizer::Rule rule{.name = "SGD",
                       .rate = std::move(rate),
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .takes_decay_form = true,
                       .takes_parts = true,
                       .update = [](const Optimizer::Update& u) -> Node& {
                         return sgd_update(u.variable, {u.gradient, u.factor}, u.rate,
                                           {.weight_decay = u.coupled_decay(),
                                            .decoupled_decay = u.decoupled_decay(),
                                            .part_from = u.part_from},
                                           u.at);
                       }};
  return standard<SgdOptions>("sgd", std::move(rule), options, {},
                              [](const SgdOptions& other) { return sgd(0, other); });
}

Optimizer momentum(LearningRate rate, MomentumOptions options) {
  const MomentumForm form = options.nesterov ? MomentumForm::kNesterov : MomentumForm::kPlain;
  Optimizer::Rule rule{
      .name = "Momentum",
      .rate = std::move(rate),
      .slots = {"Momentum"},
      .takes_loss_scale = true,
      .takes_weight_decay = true,
      .weight_decay = options.weight_decay,
      .takes_decay_form = true,
      .takes_parts = true,
      .update = [momentum = options.momentum, form](const Optimizer::Update& u) -> Node& {
        return momentum_update(u.variable, u.slots[0], {u.gradient, u.factor}, u.rate,
                               {.momentum = momentum,
                                .weight_decay = u.coupled_decay(),
                                .form = form,
                                .decoupled_decay = u.decoupled_decay(),
                                .part_from = u.part_from},
                               u.at);
      }};
  return standard<MomentumOptions>(
      "momentum", std::move(rule), options,
      {{"momentum", &MomentumOptions::momentum, kShareOption},
       {"nesterov", &MomentumOptions::nesterov, kSwitchOption}},
      [](const MomentumOptions& other) { return belfry::momentum(0, other); });
}

Optimizer momentum(LearningRate rate, double momentum) {
  return belfry::momentum(std::move(rate), MomentumOptions{.momentum = momentum});
}

Optimizer rms_prop(LearningRate rate, RmsPropOptions options) {
  const RmsPropUpdateOptions factors{options.alpha, options.epsilon, options.momentum};
  Optimizer::Rule rule{.name = "RMSProp",
                       .rate = std::move(rate),
                       .slots = {"RMSProp", "RMSProp_1"},
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .takes_decay_form = true,
                       .takes_parts = true,
                       .update = [factors](const Optimizer::Update& u) -> Node& {
                         RmsPropUpdateOptions own = factors;
                         own.weight_decay = u.coupled_decay();
                         own.decoupled_decay = u.decoupled_decay();
                         own.part_from = u.part_from;
                         return rms_prop_update(u.variable, u.slots[0], u.slots[1],
                                                {u.gradient, u.factor}, u.rate, own, u.at);
                       }};
  return standard<RmsPropOptions>("rms_prop", std::move(rule), options,
                                  {{"alpha", &RmsPropOptions::alpha, kShareOrAllOption},
                                   {"epsilon", &RmsPropOptions::epsilon, kPositiveOption},
                                   {"momentum", &RmsPropOptions::momentum, kShareOption}},
                                  [](const RmsPropOptions& other) { return rms_prop(0, other); });
}

Optimizer adam(AdamOptions options) {
  const AdamUpdateOptions factors{options.beta1, options.beta2, options.epsilon};
  Optimizer::Rule rule{.name = options.name,
                       .rate = options.rate,
                       .slots = {options.name, options.name + "_1"},
                       .counts_steps = true,
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .takes_decay_form = true,
                       .takes_parts = true,
                       .update = steps_of_adam(factors)};
  return standard<AdamOptions>("adam", std::move(rule), options,
                               {{"beta1", &AdamOptions::beta1, kShareOption},
                                {"beta2", &AdamOptions::beta2, kShareOption},
                                {"epsilon", &AdamOptions::epsilon, kPositiveOption}},
                               [](const AdamOptions& other) { return adam(other); });
}

Optimizer adam(double rate) { return adam(AdamOptions{.rate = rate}); }

Optimizer adamw(LearningRate rate, AdamWOptions options) {
  const AdamUpdateOptions factors{.beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .form = AdamEpsilon::kToCorrectedRoot};
  Optimizer::Rule rule{.name = "AdamW",
                       .rate = std::move(rate),
                       .slots = {"AdamW", "AdamW_1"},
                       .counts_steps = true,
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .groups = {kSparesVectors},
                       .takes_decay_form = true,
                       .decay_form = DecayForm::kDecoupled,
                       .takes_parts = true,
                       .update = steps_of_adam(factors)};
  return standard<AdamWOptions>("adamw", std::move(rule), options,
                                {{"beta1", &AdamWOptions::beta1, kShareOption},
                                 {"beta2", &AdamWOptions::beta2, kShareOption},
                                 {"epsilon", &AdamWOptions::epsilon, kPositiveOption}},
                                [](const AdamWOptions& other) { return adamw(0, other); });
}

Optimizer amsgrad(LearningRate rate, AmsGradOptions options) {
  const AmsGradUpdateOptions factors{options.beta1, options.beta2, options.epsilon};
  Optimizer::Rule rule{.name = "AMSGrad",
                       .rate = std::move(rate),
                       .slots = {"AMSGrad", "AMSGrad_1", "AMSGrad_2"},
                       .counts_steps = true,
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .takes_decay_form = true,
                       .takes_parts = true,
                       .update = [factors](const Optimizer::Update& u) -> Node& {
                         AmsGradUpdateOptions own = factors;
                         own.weight_decay = u.coupled_decay();
                         own.decoupled_decay = u.decoupled_decay();
                         own.part_from = u.part_from;
                         return ams_grad_update(u.variable, u.slots[0], u.slots[1], u.slots[2],
                                                u.step, {u.gradient, u.factor}, u.rate, own, u.at);
                       }};
  return standard<AmsGradOptions>("amsgrad", std::move(rule), options,
                                  {{"beta1", &AmsGradOptions::beta1, kShareOption},
                                   {"beta2", &AmsGradOptions::beta2, kShareOption},
                                   {"epsilon", &AmsGradOptions::epsilon, kPositiveOption}},
                                  [](const AmsGradOptions& other) { return amsgrad(0, other); });
}

Optimizer adagrad(LearningRate rate, AdagradOptions options) {
  Optimizer::Rule rule{.name = "Adagrad",
                       .rate = std::move(rate),
                       .slots = {"Adagrad"},
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .takes_decay_form = true,
                       .takes_parts = true,
                       .update = [epsilon = options.epsilon](const Optimizer::Update& u) -> Node& {
                         return adagrad_update(u.variable, u.slots[0], {u.gradient, u.factor},
                                               u.rate,
                                               {.epsilon = epsilon,
                                                .weight_decay = u.coupled_decay(),
                                                .decoupled_decay = u.decoupled_decay(),
                                                .part_from = u.part_from},
                                               u.at);
                       }};
  return standard<AdagradOptions>("adagrad", std::move(rule), options,
                                  {{"epsilon", &AdagradOptions::epsilon, kPositiveOption}},
                                  [](const AdagradOptions& other) { return adagrad(0, other); });
}

Optimizer lion(LearningRate rate, LionOptions options) {
  const LionUpdateOptions factors{options.beta1, options.beta2};
  Optimizer::Rule rule{
      .name = "Lion",
      .rate = std::move(rate),
      .slots = {"Lion"},
      .takes_loss_scale = true,
      .takes_weight_decay = true,
      .weight_decay = options.weight_decay,
      .groups = {kSparesVectors},
      .takes_decay_form = true,
      .decay_form = DecayForm::kDecoupled,
      .takes_parts = true,
      .update = [factors](const Optimizer::Update& u) -> Node& {
        LionUpdateOptions own = factors;
        own.weight_decay = u.decoupled_decay();
        own.coupled_decay = u.coupled_decay();
        own.part_from = u.part_from;
        return lion_update(u.variable, u.slots[0], {u.gradient, u.factor}, u.rate, own, u.at);
      }};
  return standard<LionOptions>(
      "lion", std::move(rule), options,
      {{"beta1", &LionOptions::beta1, kShareOption}, {"beta2", &LionOptions::beta2, kShareOption}},
      [](const LionOptions& other) { return lion(0, other); });
}

Optimizer lars(LearningRate rate, LarsOptions options) {
  const LarsUpdateOptions factors{
      .momentum = options.momentum,
      .coefficient = options.trust_coefficient,
      .epsilon = options.epsilon,
      .form = options.nesterov ? MomentumForm::kNesterov : MomentumForm::kPlain};
  const auto update = [factors](const Optimizer::Update& u) -> Node& {
    const ScaledGradient gradient{u.gradient, u.factor};
    if (!is_matrix(u))
      return momentum_update(u.variable, u.slots[0], gradient, u.rate,
                             {.momentum = factors.momentum,
                              .weight_decay = u.weight_decay,
                              .form = factors.form,
                              .part_from = u.part_from},
                             u.at);
    LarsUpdateOptions own = factors;
    own.weight_decay = u.weight_decay;
    own.part_from = u.part_from;
    const std::vector<Output> tensors{updated_elements(u), u.gradient}, norms = u.norms(tensors);
    return lars_update(u.variable, u.slots[0], norms[0], norms[1], gradient, u.rate, own, u.at);
  };
  Optimizer::Rule rule{.name = "LARS",
                       .rate = std::move(rate),
                       .slots = {"LARS"},
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .groups = {kSparesVectors},
                       .takes_parts = true,
                       .update = update};
  return standard<LarsOptions>(
      "lars", std::move(rule), options,
      {{"momentum", &LarsOptions::momentum, kShareOption},
       {"nesterov", &LarsOptions::nesterov, kSwitchOption},
       {"trust_coefficient", &LarsOptions::trust_coefficient, kPositiveOption},
       {"epsilon", &LarsOptions::epsilon, kNotNegativeOption}},
      [](const LarsOptions& other) { return lars(0, other); });
}

// The update before weight decay is kept in the third slot, negative: AdamUpdate makes it there of
// the moments, and can so be fused with the sum of the gradient. With a rate and a decay of 1 it
// leaves nothing of what the slot held.
Optimizer lamb(LearningRate rate, LambOptions options) {
  const AdamUpdateOptions factors{.beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .weight_decay = 1,
                                  .form = AdamEpsilon::kToCorrectedRoot};
  const auto update = [factors](const Optimizer::Update& u) -> Node& {
    Graph& graph = u.gradient.graph();
    const Output one = constant(graph, 1, u.variable.dtype(), At("one", u.at.site));
    const Output negative = adam_update(u.slots[2], u.slots[0], u.slots[1], u.step,
                                        {u.gradient, u.factor}, one, factors, u.at)
                                .output();
    const Output value = updated_elements(u);
    const Output direction = u.weight_decay != 0 ? value * u.weight_decay - negative : -negative;
    const std::vector<Output> tensors{value, direction}, norms = u.norms(tensors);
    const Output ratio = trust_ratio(norms[0], norms[1], u.factor, "trust_ratio");
    return sgd_update(u.variable, {direction, ratio}, u.rate, {.part_from = u.part_from}, u.at);
  };
  Optimizer::Rule rule{.name = "LAMB",
                       .rate = std::move(rate),
                       .slots = {"LAMB", "LAMB_1", "LAMB_2"},
                       .counts_steps = true,
                       .takes_loss_scale = true,
                       .takes_weight_decay = true,
                       .weight_decay = options.weight_decay,
                       .groups = {kSparesVectors},
                       .takes_parts = true,
                       .update = update};
  return standard<LambOptions>("lamb", std::move(rule), options,
                               {{"beta1", &LambOptions::beta1, kShareOption},
                                {"beta2", &LambOptions::beta2, kShareOption},
                                {"epsilon", &LambOptions::epsilon, kPositiveOption}},
                               [](const LambOptions& other) { return lamb(0, other); });
}

namespace {

// Made once: flags ask for all of them several times.
const std::vector<Optimizer>& standard_optimizers() {
  static const std::vector<Optimizer> all{sgd(0.01),   momentum(0.01), rms_prop(0.01), adam(1e-3),
                                          adamw(1e-3), amsgrad(1e-3),  adagrad(0.01),  lion(1e-4),
                                          lamb(1e-3),  lars(0.1)};
  return all;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Optimizer& optimizer : standard_optimizers()) names.push_back(optimizer.kind());
  return names;
}

Optimizer make_optimizer(std::string_view name) {
  for (const Optimizer& optimizer : standard_optimizers())
    if (optimizer.kind() == name) return optimizer;
  throw InvalidArgument(
      cat("there is no optimizer '", shown(name), "', but there are ", join(optimizer_names())));
}

}  // namespace belfry
