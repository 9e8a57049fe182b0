// A hash that is the same in every build and on every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace belfry {

// 64-bit FNV-1a (Fowler, Noll, Vo) over a stream of bytes.
class Fnv1a {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) value_ = (value_ ^ static_cast<std::uint8_t>(b)) * kPrime;
  }
  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace belfry
