// Losses and metrics in which weighted means occur, for evaluations.
#pragma once
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

// TowerRecord::evaluated of a tower, to whose graph it may add nodes. Weighted means that are added
// up or multiplied by constants become terms. One that occurs otherwise, as in exp(mean), stays in
// `rest`: the mean of the values of blocks of samples.
std::vector<EvaluatedMean> evaluated_means(const Tower& tower);

}  // namespace belfry
