#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/updates/adam_update.h"
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

}  // namespace

Optimizer sgd(LearningRate rate, SgdOptions options) {
  return Optimizer({.name = "SGD",
                    .rate = std::move(rate),
                    .takes_loss_scale = true,
                    .takes_weight_decay = true,
                    .weight_decay = options.weight_decay,
                    .takes_parts = true,
                    .update = [](const Optimizer::Update& u) -> Node& {
                      return sgd_update(u.variable, {u.gradient, u.factor}, u.rate,
                                        {.weight_decay = u.weight_decay, .part_from = u.part_from},
                                        u.at);
                    }});
}

Optimizer momentum(LearningRate rate, MomentumOptions options) {
  const MomentumForm form = options.nesterov ? MomentumForm::kNesterov : MomentumForm::kPlain;
  return Optimizer(
      {.name = "Momentum",
       .rate = std::move(rate),
       .slots = {"Momentum"},
       .takes_loss_scale = true,
       .takes_weight_decay = true,
       .weight_decay = options.weight_decay,
       .takes_parts = true,
       .update = [momentum = options.momentum, form](const Optimizer::Update& u) -> Node& {
         return momentum_update(u.variable, u.slots[0], {u.gradient, u.factor}, u.rate,
                                {.momentum = momentum,
                                 .weight_decay = u.weight_decay,
                                 .form = form,
                                 .part_from = u.part_from},
                                u.at);
       }});
}

Optimizer momentum(LearningRate rate, double momentum) {
  return belfry::momentum(std::move(rate), MomentumOptions{.momentum = momentum});
}

Optimizer rms_prop(LearningRate rate, RmsPropOptions options) {
  RmsPropUpdateOptions factors{options.alpha, options.epsilon, options.momentum};
  return Optimizer({.name = "RMSProp",
                    .rate = std::move(rate),
                    .slots = {"RMSProp", "RMSProp_1"},
                    .takes_loss_scale = true,
                    .takes_weight_decay = true,
                    .weight_decay = options.weight_decay,
                    .takes_parts = true,
                    .update = [factors](const Optimizer::Update& u) -> Node& {
                      RmsPropUpdateOptions own = factors;
                      own.weight_decay = u.weight_decay;
                      own.part_from = u.part_from;
                      return rms_prop_update(u.variable, u.slots[0], u.slots[1],
                                             {u.gradient, u.factor}, u.rate, own, u.at);
                    }});
}

Optimizer adam(AdamOptions options) {
  const AdamUpdateOptions factors{options.beta1, options.beta2, options.epsilon};
  return Optimizer({.name = options.name,
                    .rate = std::move(options.rate),
                    .slots = {options.name, options.name + "_1"},
                    .counts_steps = true,
                    .takes_loss_scale = true,
                    .takes_parts = true,
                    .update = [factors](const Optimizer::Update& u) -> Node& {
                      AdamUpdateOptions own = factors;
                      own.part_from = u.part_from;
                      return adam_update(u.variable, u.slots[0], u.slots[1], u.step,
                                         {u.gradient, u.factor}, u.rate, own, u.at);
                    }});
}

Optimizer adam(double rate) { return adam(AdamOptions{.rate = rate}); }

Optimizer adamw(LearningRate rate, AdamWOptions options) {
  const AdamUpdateOptions factors{.beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .form = AdamEpsilon::kToCorrectedRoot};
  return Optimizer({.name = "AdamW",
                    .rate = std::move(rate),
                    .slots = {"AdamW", "AdamW_1"},
                    .counts_steps = true,
                    .takes_loss_scale = true,
                    .takes_weight_decay = true,
                    .weight_decay = options.weight_decay,
                    .groups = {kSparesVectors},
                    .takes_parts = true,
                    .update = [factors](const Optimizer::Update& u) -> Node& {
                      AdamUpdateOptions own = factors;
                      own.weight_decay = u.weight_decay;
                      own.part_from = u.part_from;
                      return adam_update(u.variable, u.slots[0], u.slots[1], u.step,
                                         {u.gradient, u.factor}, u.rate, own, u.at);
                    }});
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
  return Optimizer({.name = "LAMB",
                    .rate = std::move(rate),
                    .slots = {"LAMB", "LAMB_1", "LAMB_2"},
                    .counts_steps = true,
                    .takes_loss_scale = true,
                    .takes_weight_decay = true,
                    .weight_decay = options.weight_decay,
                    .groups = {kSparesVectors},
                    .takes_parts = true,
                    .update = update});
}

}  // namespace belfry
