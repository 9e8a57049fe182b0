// Finds samples with values that are NaN or infinite.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "belfry/trainers/data/prefetch.h"

namespace belfry {

// "field 'x' of test sample 37 has nan at element 0": the first such value of these samples, which
// are numbered from 0 and called `kind`; "" if all are finite. `tensors` has one per field of the
// data, with a row per sample.
std::string not_finite_input(const Dataset& data, std::span<const Tensor> tensors,
                             std::span<const std::int64_t> samples, const std::string& kind);

// The same for a batch of training samples of these towers. It computes the order of the epoch
// again.
std::string not_finite_input(const Dataset& data, const BatchPlan& plan, TowerSpan towers,
                             const Batch& batch);

}  // namespace belfry
