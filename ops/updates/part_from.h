// An option of updates: which part of a variable they update.
#pragma once
#include <cstdint>
#include <string>

namespace belfry {

// 0: an update changes the whole variable. Otherwise its gradient and slots are rows for a part of
// it, and this is the number of the part's first element, counted from 1.
struct PartFrom {
  // Says where a node works, not what it computes (NodeOptions::Field).
  static constexpr bool kIsPlace = true;

  PartFrom(std::int64_t from = 0) : element(from) {}  // NOLINT
  operator std::int64_t() const { return element; }   // NOLINT

  std::string str() const { return std::to_string(element); }

  std::int64_t element;
};

}  // namespace belfry
