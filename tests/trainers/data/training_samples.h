#pragma once
#include <cstdint>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry::test {

// The fields of these samples as training takes them in this pass over the data.
inline std::vector<Tensor> training_samples(const Dataset& data, DataPass pass,
                                            const std::vector<std::int64_t>& rows) {
  std::vector<Tensor> tensors = batch_tensors(data, std::ssize(rows));
  std::vector<std::byte*> out;
  for (Tensor& tensor : tensors) out.push_back(tensor.mutable_raw());
  data.gather_training(pass, rows, out);
  return tensors;
}

}  // namespace belfry::test
