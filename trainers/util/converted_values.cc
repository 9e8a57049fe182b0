#include "belfry/trainers/util/converted_values.h"

#include <cstdint>
#include <cstring>

#include "belfry/framework/kernels/half.h"

namespace belfry {
namespace {

namespace converted_values {

template <class T>
std::vector<T> elements_in(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> to_f32(std::span<const std::byte> bytes, DType from) {
  if (from == DType::kF32) return elements_in<float>(bytes);
  if (from == DType::kF64) {
    const auto wide = elements_in<double>(bytes);
    return {wide.begin(), wide.end()};
  }
  const auto narrow = elements_in<std::uint16_t>(bytes);
  std::vector<float> values(narrow.size());
  kernels::half_conversion(from).widen(narrow.data(), values.data(),
                                       static_cast<std::int64_t>(narrow.size()));
  return values;
}

}  // namespace converted_values

}  // namespace

bool widens(DType from, DType to) {
  if (from == to) return true;
  return is_half(from) ? to == DType::kF32 || to == DType::kF64
                       : from == DType::kF32 && to == DType::kF64;
}

std::vector<std::byte> converted(std::span<const std::byte> values, DType from, DType to) {
  using namespace converted_values;
  if (from == to) return {values.begin(), values.end()};
  const std::vector<float> wide = to_f32(values, from);
  if (to == DType::kF32) return bytes_of(wide);
  if (to == DType::kF64) return bytes_of(std::vector<double>(wide.begin(), wide.end()));
  std::vector<std::uint16_t> narrow(wide.size());
  kernels::half_conversion(to).narrow(wide.data(), narrow.data(),
                                      static_cast<std::int64_t>(wide.size()));
  return bytes_of(narrow);
}

}  // namespace belfry
