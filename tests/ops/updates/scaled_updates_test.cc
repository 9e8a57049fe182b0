// Updates by gradients with a factor, as in mixed precision.
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace scaled_updates_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// An update of a variable and `slots` slots by x[0], times the factor x[1] if there are two.
struct Rule {
  const char* name;
  std::size_t slots;
  UpdateBuilder build;
};

ScaledGradient gradient_of(Inputs x) { return x.size() > 1 ? ScaledGradient{x[0], x[1]} : x[0]; }

const Rule kRules[] = {
    {"sgd", 0,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return sgd_update(v[0], gradient_of(x), constant(x[0].graph(), 0.1, x[0].dtype()));
     }},
    {"momentum", 1,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return momentum_update(v[0], v[1], gradient_of(x),
                              constant(x[0].graph(), 0.1, x[0].dtype()));
     }},
    {"sgd with decay", 0,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return sgd_update(v[0], gradient_of(x), constant(x[0].graph(), 0.1, x[0].dtype()),
                         {.weight_decay = 0.5});
     }},
    {"rms_prop", 2,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return rms_prop_update(v[0], v[1], v[2], gradient_of(x),
                              constant(x[0].graph(), 0.1, x[0].dtype()),
                              {.momentum = 0.9, .weight_decay = 0.5});
     }},
    {"adagrad", 1,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return adagrad_update(v[0], v[1], gradient_of(x), constant(x[0].graph(), 0.1, x[0].dtype()),
                             {.weight_decay = 0.5});
     }},
    {"lion", 1,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       return lion_update(v[0], v[1], gradient_of(x), constant(x[0].graph(), 0.1, x[0].dtype()),
                          {.weight_decay = 0.5});
     }},
    // The norm is that of the gradient before the factor.
    {"lars", 1,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       const double norm = x.size() > 1 ? 3 * 4096 : 3;
       return lars_update(v[0], v[1], constant(x[0].graph(), 2, DType::kF64),
                          constant(x[0].graph(), norm, DType::kF64), gradient_of(x),
                          constant(x[0].graph(), 0.1, x[0].dtype()), {.weight_decay = 0.5});
     }},
    {"amsgrad", 3,
     [](std::span<const Variable> v, Inputs x) -> Node& {
       const std::int64_t step = x.size() > 2 ? 0 : 1;
       return ams_grad_update(v[0], v[1], v[2], v[3], constant(x[0].graph(), Tensor(step)),
                              gradient_of(x), constant(x[0].graph(), 0.1, x[0].dtype()),
                              {.weight_decay = 0.5});
     }},
    // The counter does not move in updates that are skipped, so it may be 0.
    {"adam", 2, [](std::span<const Variable> v, Inputs x) -> Node& {
       const Output rate = constant(x[0].graph(), 0.1, x[0].dtype());
       const std::int64_t step = x.size() > 2 ? 0 : 1;
       return adam_update(v[0], v[1], v[2], constant(x[0].graph(), Tensor(step)), gradient_of(x),
                          rate, {.weight_decay = 0.5});
     }}};

std::vector<Tensor> variables_of(const Rule& rule) {
  std::vector<Tensor> variables;
  for (std::size_t i = 0; i <= rule.slots; ++i)
    variables.push_back(random_values({33}, i == 0 ? -1 : 0, 1, static_cast<unsigned>(i) + 5));
  return variables;
}

TEST(UpdatesWithAFactor, GiveTheBitsOfUnscaledGradients) {
  const Tensor gradient = random_values({33}, -1, 1, 2);
  Tensor scaled = gradient;
  for (float& value : scaled.mutable_data<float>()) value *= 4096;
  for (const Rule& rule : kRules)
    for (const bool reference : {false, true})
      EXPECT_EQ(update(rule.build, variables_of(rule), {scaled, Tensor(0x1p-12f)},
                       {.reference = reference}),
                update(rule.build, variables_of(rule), {gradient}, {.reference = reference}))
          << rule.name;
}

TEST(UpdatesWithAFactor, WriteNothingWhereItIs0) {
  Tensor gradient = random_values({33}, -1, 1, 2);
  gradient.mutable_data<float>()[3] = kNaN;
  gradient.mutable_data<float>()[30] = kInfinity;
  for (const Rule& rule : kRules)
    for (const bool reference : {false, true}) {
      std::vector<Tensor> variables = variables_of(rule);
      variables[0].mutable_data<float>()[7] = -0.0f;
      EXPECT_EQ(update(rule.build, variables, {gradient, Tensor(0.0f), Tensor(0.0f)},
                       {.reference = reference}),
                variables)
          << rule.name;
    }
}

TEST(UpdatesWithAFactor, RefuseOneThatIsNoScalar) {
  for (const Rule& rule : kRules)
    expect_update_refused(rule.build, variables_of(rule),
                          {random_values({33}), random_values({33})},
                          "the factor is f32[33], but a scalar f32 is needed");
}

}  // namespace scaled_updates_test
}  // namespace belfry
