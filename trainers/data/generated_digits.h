// Digits drawn from strokes: data for a first run on a machine without files. They are harder to
// tell apart than printed digits, and easier than handwritten ones; results on them say nothing
// about MNIST.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "belfry/framework/base/allocator.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry::data {

inline constexpr std::int64_t kDigitSide = 28;  // pixels

// Fields: "image" f32 [28,28,1] in [0, 1], white on black; "label" i32 scalar, 0 to 9. There are
// two or three forms of each class, bent, rotated, sheared, scaled and shifted, drawn with lines of
// random width and brightness, with noise. Sample i depends on (seed, i) alone, with equal bits on
// every machine: no library function whose last digit varies is used.
//
// A digit is drawn when it is first gathered, and kept. So each of many processes draws only the
// digits that it trains with.
class GeneratedDigits final : public Dataset {
 public:
  // Throws InvalidArgument if `count` is negative.
  GeneratedDigits(std::int64_t count, std::uint64_t seed, std::string description);

  std::vector<Field> signature() const override;
  std::int64_t size() const override { return count_; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override;
  std::string describe() const override { return description_; }

 private:
  const std::uint8_t* drawn(std::int64_t index) const;

  const std::int64_t count_;
  const std::uint64_t seed_;
  const std::string description_;
  const MemoryBlock images_;                      // u8 [count, 28, 28]
  const std::unique_ptr<std::once_flag[]> once_;  // of each image; drawing throws nothing
};

}  // namespace belfry::data
