// What the fuzz targets share. A target is the function LLVMFuzzerTestOneInput of its source; it
// returns for every input or, if it found a bug, throws.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "belfry/framework/base/error.h"

// Returns 0. libFuzzer's name and type.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace belfry::test {

// The most bytes that the target may allocate at once for an input.
std::size_t largest_allowed(const std::uint8_t* data, std::size_t size);

// The bound of most targets.
inline std::size_t mib_or_twice(std::size_t size) {
  return std::max<std::size_t>(std::size_t{1} << 20, 2 * size);
}

inline std::vector<std::byte> bytes_of(std::span<const std::uint8_t> input) {
  const auto bytes = std::as_bytes(input);
  return {bytes.begin(), bytes.end()};
}

// f() may refuse the input, by an error of Belfry that is not a bug of Belfry.
template <class F>
void may_refuse(const F& f) {
  try {
    f();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

inline void check(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

}  // namespace belfry::test
