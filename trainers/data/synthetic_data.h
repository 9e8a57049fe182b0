// Data that cost no disk and no preparation, for benchmarks.
#pragma once
#include <cstdint>
#include <memory>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

// How often each class occurs: equally often, or as words do in text (Zipf's law): class c in
// proportion to 1 / (c + 1).
enum class ClassLaw { kUniform, kZipf };

// `samples` samples, made when they are first needed: f32 fields uniform in [-1, 1), i32 fields
// classes in [0, classes) by that law. Element i of a field depends on (seed, the field's place, i)
// alone. Throws InvalidArgument for other types, and unless samples and classes are at least 1.
std::unique_ptr<Dataset> synthetic_data(std::vector<Dataset::Field> fields, int classes,
                                        std::int64_t samples, std::uint64_t seed,
                                        ClassLaw law = ClassLaw::kUniform);

}  // namespace belfry
