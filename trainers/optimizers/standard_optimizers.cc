#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

Optimizer sgd(LearningRate rate) {
  return Optimizer({.name = "SGD",
                    .rate = std::move(rate),
                    .takes_loss_scale = true,
                    .update = [](const Optimizer::Update& u) -> Node& {
                      return sgd_update(u.variable, {u.gradient, u.factor}, u.rate, u.at);
                    }});
}

Optimizer momentum(LearningRate rate, double momentum) {
  return Optimizer({.name = "Momentum",
                    .rate = std::move(rate),
                    .slots = {"Momentum"},
                    .takes_loss_scale = true,
                    .update = [momentum](const Optimizer::Update& u) -> Node& {
                      return momentum_update(u.variable, u.slots[0], {u.gradient, u.factor}, u.rate,
                                             {.momentum = momentum}, u.at);
                    }});
}

Optimizer adam(AdamOptions options) {
  const AdamUpdateOptions factors{options.beta1, options.beta2, options.epsilon};
  return Optimizer({.name = options.name,
                    .rate = std::move(options.rate),
                    .slots = {options.name, options.name + "_1"},
                    .counts_steps = true,
                    .takes_loss_scale = true,
                    .update = [factors](const Optimizer::Update& u) -> Node& {
                      return adam_update(u.variable, u.slots[0], u.slots[1], u.step,
                                         {u.gradient, u.factor}, u.rate, factors, u.at);
                    }});
}

Optimizer adam(double rate) { return adam(AdamOptions{.rate = rate}); }

}  // namespace belfry
