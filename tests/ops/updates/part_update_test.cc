// Updates of parts of variables, and errors of all updates.
#include <gmock/gmock.h>
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
namespace part_update_test {

constexpr std::int64_t kRows = 6, kColumns = 5, kFirst = 7, kSize = 11;

// Takes a variable and its slots, and a gradient; `part_from` is as in SgdUpdateOptions.
using PartBuilder = std::function<Node&(std::span<const Variable>, Inputs, std::int64_t part_from)>;

struct Case {
  const char* name;
  std::size_t slots;
  PartBuilder build;
};

const Case kCases[] = {
    {"Sgd", 0,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return sgd_update(v[0], x[0], x[1], {.weight_decay = 0.1, .part_from = part_from});
     }},
    {"Momentum", 1,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return momentum_update(
           v[0], v[1], x[0], x[1],
           {.weight_decay = 0.1, .form = MomentumForm::kNesterov, .part_from = part_from});
     }},
    {"RmsProp", 2,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return rms_prop_update(v[0], v[1], v[2], x[0], x[1],
                              {.momentum = 0.5, .part_from = part_from});
     }},
    {"Adam", 2,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return adam_update(
           v[0], v[1], v[2], x[2], x[0], x[1],
           {.weight_decay = 0.1, .form = AdamEpsilon::kToCorrectedRoot, .part_from = part_from});
     }},
    {"AmsGrad", 3,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return ams_grad_update(v[0], v[1], v[2], v[3], x[2], x[0], x[1],
                              {.weight_decay = 0.1, .part_from = part_from});
     }},
    {"Adagrad", 1,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return adagrad_update(v[0], v[1], x[0], x[1], {.weight_decay = 0.1, .part_from = part_from});
     }},
    {"Lion", 1,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       return lion_update(v[0], v[1], x[0], x[1], {.weight_decay = 0.1, .part_from = part_from});
     }},
    {"Lars", 1,
     [](std::span<const Variable> v, Inputs x, std::int64_t part_from) -> Node& {
       const Output norm = constant(x[0].graph(), 2, DType::kF64);
       return lars_update(v[0], v[1], norm, norm, x[0], x[1],
                          {.weight_decay = 0.1, .part_from = part_from});
     }},
};

// Elements [first, first + size) of a tensor, as a row.
Tensor row_of(const Tensor& whole, std::int64_t first, std::int64_t size) {
  const std::span<const float> all = whole.data<float>();
  return Tensor({size}, std::vector<float>(all.begin() + first, all.begin() + first + size));
}

Tensor values(unsigned seed) {
  return to(random_values({kRows, kColumns}, 0.1, 1, seed), DType::kF32);
}

std::vector<Tensor> scalars(Tensor gradient) {
  return {std::move(gradient), Tensor(0.1f), Tensor(std::int64_t{3})};
}

class PartUpdates : public testing::TestWithParam<Case> {};

TEST_P(PartUpdates, ChangeTheElementsOfThePartAsWholeUpdatesDo) {
  const auto& [name, slots, build] = GetParam();
  std::vector<Tensor> whole{values(1)}, part{values(1)};
  for (std::size_t s = 0; s < slots; ++s) {
    whole.push_back(values(2 + static_cast<unsigned>(s)));
    part.push_back(row_of(whole.back(), kFirst, kSize));
  }
  const Tensor gradient = values(9);
  for (const bool reference : {false, true}) {
    const auto by = [&](std::int64_t at) -> UpdateBuilder {
      return
          [&build, at](std::span<const Variable> v, Inputs x) -> Node& { return build(v, x, at); };
    };
    const InterpreterOptions options{.reference = reference};
    const std::vector<Tensor> all = update(by(0), whole, scalars(gradient), options);
    const std::vector<Tensor> some =
        update(by(kFirst + 1), part, scalars(row_of(gradient, kFirst, kSize)), options);
    constexpr std::int64_t kEnd = kFirst + kSize, kElements = kRows * kColumns;
    EXPECT_EQ(row_of(some[0], kFirst, kSize), row_of(all[0], kFirst, kSize));
    EXPECT_EQ(row_of(some[0], 0, kFirst), row_of(whole[0], 0, kFirst));
    EXPECT_EQ(row_of(some[0], kEnd, kElements - kEnd), row_of(whole[0], kEnd, kElements - kEnd));
    for (std::size_t s = 1; s <= slots; ++s) EXPECT_EQ(some[s], row_of(all[s], kFirst, kSize)) << s;
  }
}

TEST_P(PartUpdates, RefuseRowsThatReachBeyondTheVariable) {
  const auto& [name, slots, build] = GetParam();
  std::vector<Tensor> variables{values(1)};
  for (std::size_t s = 0; s < slots; ++s) variables.push_back(row_of(values(2), 0, kSize));
  expect_update_refused(
      [&build](std::span<const Variable> v, Inputs x) -> Node& {
        return build(v, x, kRows * kColumns - kSize + 2);
      },
      variables, scalars(row_of(values(9), 0, kSize)), "updated from element 20 on, but its");
}

// Expects a refusal of the update of a whole variable with a variable, slots and a gradient of
// these types.
void expect_whole_refused(const Case& update, const Tensor& variable, const Tensor& slot,
                          const Tensor& gradient, const std::string& message) {
  std::vector<Tensor> variables{variable};
  for (std::size_t s = 0; s < update.slots; ++s) variables.push_back(slot);
  expect_update_refused(
      [&](std::span<const Variable> v, Inputs x) -> Node& { return update.build(v, x, 0); },
      variables, scalars(gradient), message);
}

TEST_P(PartUpdates, RefuseGradientsOfAnotherShapeOrType) {
  const Tensor x = values(1);
  expect_whole_refused(GetParam(), x, x, random_values({kColumns, kRows}),
                       "the variable is f32[6,5], but its gradient is f32[5,6]");
  expect_whole_refused(GetParam(), x, x, to(x, DType::kF64),
                       "the variable is f32[6,5], but its gradient is f64[6,5]");
}

TEST_P(PartUpdates, RefuseSlotsOfAnotherShape) {
  if (GetParam().slots == 0) return;
  expect_whole_refused(GetParam(), values(1), random_values({kRows}), values(1),
                       "the variable is f32[6,5], but its slot is f32[6]");
}

TEST_P(PartUpdates, RefuseVariablesOf16BitsOrIntegers) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor x = to(values(1), dtype);
    expect_whole_refused(GetParam(), x, x, x, "keep it in f32 and cast what is read");
  }
  const Tensor whole = to(values(1), DType::kI32);
  expect_whole_refused(GetParam(), whole, whole, whole, "Update");
}

INSTANTIATE_TEST_SUITE_P(Ops, PartUpdates, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace part_update_test
}  // namespace belfry
