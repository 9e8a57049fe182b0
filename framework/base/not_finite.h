// Finds values that are NaN or infinite.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "belfry/framework/base/dtype.h"

namespace belfry {

struct NotFinite {
  std::int64_t element = 0;  // the first, in row-major order
  std::string value;         // "nan", "inf" or "-inf"

  // "nan at element 3".
  std::string str() const;
};

// The first such element of a tensor of type `dtype`; none if all are finite. Integers always are.
std::optional<NotFinite> find_not_finite(DType dtype, std::span<const std::byte> elements);
// The same, without infinities.
std::optional<NotFinite> find_nan(DType dtype, std::span<const std::byte> elements);

}  // namespace belfry
