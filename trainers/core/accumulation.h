// Sums of combined gradients over the batches of a step.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// Collection of the variables that hold sums of gradients between the batches of a step. They are
// neither saved nor hashed, because they hold nothing between two steps.
inline constexpr std::string_view kGradientSums = "gradient_sums";

struct BatchSums {
  // `begin` sets the sums to the combined gradients of the first batch. `add` adds the gradients of
  // each batch between the first and the last.
  AccumulationNodes nodes;
  // What the last batch applies: the sums with the gradients of that batch.
  GradientRows of_all;
  Unscaling unscaling;  // by 1 / batches, a scalar, f32, on the device in scope
};

// In both functions, `applied` is Unscaling::applied of a batch. If it is 0 for one of them, the
// update by the sums is skipped. Empty: it never is.

// For steps of `batches` batches, at least two: (g1 + g2) + g3 for three. `combined`: the combined
// gradients of each tower, or only of tower 0 if all share the variables. Makes the sums: one per
// variable, of its shape and on its device; replicas of a variable have replicas of its sum. With
// `parts`, one per variable, gradients are the rows of this process's parts, and sums have the same
// lengths.
BatchSums sum_over_batches(const GradientRows& combined, int batches, Output applied = {},
                           std::span<const VariablePart> parts = {});
// The same for the distinct gradients of a table, with the table's first device in scope.
BatchSums sum_over_batches(const GradientTable& combined, int batches, Output applied = {});

}  // namespace belfry
