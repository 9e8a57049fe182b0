// How two checkpoints differ (`belfry checkpoint diff`).
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry {

struct CheckpointDifference {
  struct Type {
    std::string name;
    TensorType a, b;
  };
  // The values of a tensor that has one type in both.
  struct Values {
    std::string name;
    std::int64_t elements = 0;
    std::int64_t differing = 0;     // in their bits: 0 differs from -0, and a NaN not from itself
    std::int64_t first = 0;         // the first differing element, in row-major order
    std::int64_t incomparable = 0;  // differing elements that are NaN or infinite in a or b
    double largest = 0;             // |a - b| of other elements
    double relative = 0;  // `largest` divided by the largest finite |a| or |b| of the tensor

    std::string str() const;
  };

  std::string path_a, path_b;
  std::vector<std::string> only_a, only_b;  // names
  std::vector<Type> types;
  std::vector<Values> values;
  std::size_t equal = 0;  // tensors with the same bits

  bool none() const;
  // Lines, each with a line break.
  std::string text() const;
  // {a, b, equal: bool, equal_tensors, only_a, only_b, types: [{name, a, b}], values: [{name,
  // elements, differing, first, incomparable, largest, relative}]}.
  JsonValue json() const;
};

// Compares their tensors. Steps, and other members of the manifests, may differ.
CheckpointDifference compare_checkpoints(const StoredCheckpoint& a, const StoredCheckpoint& b);

}  // namespace belfry
