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

// The gradients of each tower's own loss; zeros for towers to which the form feeds no rows.
GradientRows gradients_of_separate_losses(const TrainedLoss& built, GradientRows computed,
                                          const BatchForm& batch);

// TrainedLoss::canonical of a model with a joint loss. If towers share variables, the gradients
// of all uses of a variable are one sum. It adds tower by tower only if each tower uses the
// variable once.
bool joint_loss_is_canonical(std::span<const TowerRecord> towers, std::span<const BatchForm> forms);

// StepNodes::zeros: the tensors that towers without samples would contribute.
std::vector<Output> zeros_of_joint_loss(std::span<const TowerRecord> towers,
                                        const BatchForm& batch);

// For several processes: throws OptionError unless every tower has samples, so that the gradients
// of layers over all towers have as many terms as there are towers.
void require_samples_of_all(const BatchForm& all);

// Gradients of K times the mean of all towers' losses, with respect to each tower's variables.
// Their mean over towers is the gradient of the joint loss. If towers share variables, there is one
// row, with that mean: the same sums, divided at the end. Without a loss scale, differentiation
// starts at `initial`. If that is not 1, the gradient of the joint loss is the sum over towers
// instead of the mean.
GradientRows gradients_of_joint_loss(const TrainedLoss& built, const StepNodes& step,
                                     double initial, const std::vector<std::string>& recompute);

}  // namespace belfry
