// Batches of sequences of about the same length.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

// `data`, whose samples are sequences filled up to the longest length, in batches of samples of
// about the same length:
//   bucket_by_length(reviews(dirs, train), "length", {32, 64, 256})
// The field `length`, i32 [], says how long a sample is. Fields whose first dimension is the last
// of `lengths`, here 256, have in a batch of training the least of `lengths` that none of its
// samples exceeds. The model is built and compiled once per length, with the same variables, and
// masks the rest by the field (sequence_mask(), RecurrentLayer::lengths). An evaluation takes all
// samples in the longest shape, in their order. The first use reads the lengths of all samples.
// Let it be the last to change the data. Throws InvalidArgument for lengths that do not ascend,
// more than 255 of them, or data without such fields; gathering does for a sample that is longer.
std::unique_ptr<Dataset> bucket_by_length(std::unique_ptr<Dataset> data, std::string length,
                                          std::vector<std::int64_t> lengths);

}  // namespace belfry
