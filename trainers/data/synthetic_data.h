// Data that cost no disk and no preparation, for benchmarks.
#pragma once
#include <cstdint>
#include <memory>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

// `samples` samples, made when they are first needed: f32 fields uniform in [-1, 1), i32 fields
// labels uniform in [0, classes). Element i of a field depends on (seed, the field's place, i)
// alone. Throws InvalidArgument for other types, and unless samples and classes are at least 1.
std::unique_ptr<Dataset> synthetic_data(std::vector<Dataset::Field> fields, int classes,
                                        std::int64_t samples, std::uint64_t seed);

}  // namespace belfry
