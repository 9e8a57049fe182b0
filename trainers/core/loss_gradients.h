// Gradients of losses: of each tower's own, or of a joint one. A model with layers that are
// synchronised over towers (TowerRecord::contributions) has a joint loss, the mean of all towers'
// losses by samples. It is differentiated once.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// The gradients that the towers computed of their own losses, but zeros for towers that a form
// feeds no rows.
GradientRows gradients_of_separate_losses(const TrainingGraph& built, GradientRows computed,
                                          const BatchForm& batch);

// TrainingGraph::canonical of a model with a joint loss. Where towers share variables, the
// gradients of all uses are one sum, which adds tower by tower if each has one use.
bool joint_loss_is_canonical(std::span<const TowerRecord> towers, std::span<const BatchForm> forms);

// StepNodes::zeros: what towers without samples would contribute.
std::vector<Output> zeros_of_joint_loss(std::span<const TowerRecord> towers,
                                        const BatchForm& batch);

// Of several processes, all towers need samples. So gradients of layers over all towers have as
// many terms as there are towers.
void require_samples_of_all(const BatchForm& all);

// Gradients of K times the mean of all towers' losses, with respect to each tower's variables. So
// the mean over towers is what is wanted. Where towers share variables, one row, of that mean: the
// same sums, divided last. Differentiation starts at `initial` where there is no loss scale. Unless
// that is 1, the sum over towers is what is wanted.
GradientRows gradients_of_joint_loss(const TrainingGraph& built, const StepNodes& step,
                                     double initial, const std::vector<std::string>& recompute);

}  // namespace belfry
