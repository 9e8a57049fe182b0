// Sums of combined gradients over the batches of a step.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// Collection of the variables that hold sums of gradients between the batches of a step. They are
// neither saved nor hashed: between steps they mean nothing.
inline constexpr std::string_view kGradientSums = "gradient_sums";

struct BatchSums {
  // `begin` makes sums the combined gradients of the first batch, and `add` adds those of each
  // batch between the first and the last.
  AccumulationNodes nodes;
  // To be applied with the last batch: the sums, to which its gradients are added before.
  GradientRows of_all;
  Unscaling unscaling;  // by 1 / batches, a scalar, f32, on the device in scope
};

// For steps of so many batches, at least two: (g1 + g2) + g3 for three. `combined`: of each tower,
// or of tower 0 alone where all share the variables. Makes the sums, one beside each variable and
// of its shape; replicas of a variable have replicas of its sum. With `parts`, one per variable,
// gradients are the rows of the parts of this process, and sums are as long.
BatchSums sum_over_batches(const GradientRows& combined, int batches,
                           std::span<const VariablePart> parts = {});
// Of the distinct gradients of a table. The device in scope is its first.
BatchSums sum_over_batches(const GradientTable& combined, int batches);

}  // namespace belfry
