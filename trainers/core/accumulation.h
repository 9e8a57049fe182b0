// Sums of combined gradients over the batches of a step.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// Collection of the variables that hold sums of gradients between the batches of a step. They are
// neither saved nor hashed: between steps they mean nothing.
inline constexpr std::string_view kGradientSums = "gradient_sums";

struct BatchSums {
  Node* begin;  // to be run with the first batch: sums become its combined gradients
  Node* add;    // with each batch between the first and the last: gradients are added to them
  // To be applied with the last batch: the sums, to which its gradients are added before.
  GradientRows of_all;
  Output share;  // a scalar, f32, on the device in scope: 1 / batches
};

// For steps of so many batches, at least two: (g1 + g2) + g3 for three. `combined`: of each tower,
// or of tower 0 alone where all share the variables. Makes the sums, one beside each variable and
// of its shape; replicas of a variable have replicas of its sum. With `parts`, one per variable,
// gradients are the rows of the parts of this process, and sums are as long.
BatchSums sum_over_batches(const GradientRows& combined, int batches,
                           std::span<const VariablePart> parts = {});

}  // namespace belfry
