#include "belfry/framework/base/not_finite.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::size_t kBlock = 1024;  // elements

// Whether a block has a value that is not finite. Compilers make vector instructions of this loop,
// which has no way out.
template <class Bits>
bool has_some(const std::byte* elements, Bits infinity) {
  Bits block[kBlock];
  std::memcpy(block, elements, sizeof block);
  Bits some = 0;
  for (std::size_t i = 0; i < kBlock; ++i)
    some = static_cast<Bits>(some | static_cast<Bits>((block[i] & infinity) == infinity));
  return some != 0;
}

// `infinity` has only the bits of the exponent. NaN and infinities have all of them.
template <class Bits>
std::optional<NotFinite> find_bits(std::span<const std::byte> elements, Bits infinity,
                                   bool nan_alone) {
  constexpr int kSignBit = 8 * sizeof(Bits) - 1;
  constexpr std::size_t kBytes = kBlock * sizeof(Bits);
  std::size_t first = 0;
  while (first + kBytes <= elements.size() && !has_some(&elements[first], infinity))
    first += kBytes;
  for (std::size_t at = first; at + sizeof(Bits) <= elements.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &elements[at], sizeof bits);
    if ((bits & infinity) != infinity) continue;
    const bool negative = bits >> kSignBit != 0;
    const bool infinite = static_cast<Bits>(bits << 1) == static_cast<Bits>(infinity << 1);
    if (infinite && nan_alone) continue;
    return NotFinite{.element = static_cast<std::int64_t>(at / sizeof(Bits)),
                     .value = !infinite  ? "nan"
                              : negative ? "-inf"
                                         : "inf"};
  }
  return {};
}

std::optional<NotFinite> find_in(DType dtype, std::span<const std::byte> elements, bool nan_alone) {
  switch (dtype) {
    case DType::kF16: return find_bits<std::uint16_t>(elements, 0x7C00, nan_alone);
    case DType::kBF16: return find_bits<std::uint16_t>(elements, 0x7F80, nan_alone);
    case DType::kF32: return find_bits<std::uint32_t>(elements, 0x7F800000, nan_alone);
    case DType::kF64: return find_bits<std::uint64_t>(elements, 0x7FF0000000000000, nan_alone);
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kBool: break;
  }
  return {};
}

// `to_number` makes a number of the bits of an element.
template <class Bits, class F>
std::optional<NotFinite> find_large(std::span<const std::byte> elements, double limit,
                                    const F& to_number) {
  for (std::size_t at = 0; at + sizeof(Bits) <= elements.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &elements[at], sizeof bits);
    const auto number = to_number(bits);
    if (std::abs(static_cast<double>(number)) <= limit) continue;
    return NotFinite{.element = static_cast<std::int64_t>(at / sizeof(Bits)), .value = cat(number)};
  }
  return {};
}

std::optional<NotFinite> find_large_in(double limit, DType dtype,
                                       std::span<const std::byte> elements) {
  switch (dtype) {
    case DType::kBF16:
      return find_large<std::uint16_t>(
          elements, limit, [](std::uint32_t bits) { return std::bit_cast<float>(bits << 16); });
    case DType::kF32:
      return find_large<std::uint32_t>(elements, limit, std::bit_cast<float, std::uint32_t>);
    case DType::kF64:
      return find_large<std::uint64_t>(elements, limit, std::bit_cast<double, std::uint64_t>);
    default: return {};
  }
}

}  // namespace

std::string NotFinite::str() const { return cat(value, " at element ", element); }

std::optional<NotFinite> find_not_finite(DType dtype, std::span<const std::byte> elements) {
  return find_in(dtype, elements, false);
}

std::optional<NotFinite> find_nan(DType dtype, std::span<const std::byte> elements) {
  return find_in(dtype, elements, true);
}

std::optional<NotFinite> find_beyond(double limit, DType dtype,
                                     std::span<const std::byte> elements) {
  const auto bad = find_not_finite(dtype, elements);
  if (bad) elements = elements.first(static_cast<std::size_t>(bad->element) * size_of(dtype));
  const auto large = find_large_in(limit, dtype, elements);
  return large ? large : bad;
}

}  // namespace belfry
