// Finds values that are NaN or infinite, or too large.
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
  std::string value;         // "nan", "inf", "-inf" or, of find_beyond(), a number

  // "nan at element 3".
  std::string str() const;
};

// The first such element of a tensor of type `dtype`; none if all are finite. Integers always are.
std::optional<NotFinite> find_not_finite(DType dtype, std::span<const std::byte> elements);
// The same, without infinities.
std::optional<NotFinite> find_nan(DType dtype, std::span<const std::byte> elements);
// The first element that is NaN or whose magnitude is larger than `limit`. An f16 is never too
// large.
std::optional<NotFinite> find_beyond(double limit, DType dtype,
                                     std::span<const std::byte> elements);

}  // namespace belfry
