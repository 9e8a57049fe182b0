// How windows move over images: numbers per axis, and padding.
#pragma once
#include <cstdint>
#include <string>

namespace belfry {

// A number for both axes of images, or one for each: 2, or {down, right}.
struct PerAxis {
  int vertical, horizontal;

  constexpr PerAxis(int both) : vertical(both), horizontal(both) {}  // NOLINT: options are numbers
  constexpr PerAxis(int down, int right) : vertical(down), horizontal(right) {}

  friend constexpr bool operator==(const PerAxis&, const PerAxis&) = default;
  // "2" or "[1,2]".
  std::string str() const;
};

// The padding of one axis.
struct AxisPadding {
  bool same = false;  // Padding::kSame: sizes say how much
  std::int64_t before = 0, after = 0;
};

// The pixels around an image that windows cover, too: kSame, kValid, or numbers. A number of pixels
// is for all sides, as `padding` of PyTorch: 1. Two are {top and bottom, left and right}, four are
// {top, bottom, left, right}. For sequences two numbers are {before, after}.
class Padding {
 public:
  // out = ceil(in / stride), as in TensorFlow; an odd pixel of padding goes to the bottom and
  // right.
  static const Padding kSame;
  // None. As for any numbers, out = floor((in + before + after - window) / stride) + 1.
  static const Padding kValid;

  constexpr Padding(int all) : Padding(all, all, all, all) {}  // NOLINT: options are numbers
  constexpr Padding(int vertical, int horizontal)
      : Padding(vertical, vertical, horizontal, horizontal) {}
  constexpr Padding(int top, int bottom, int left, int right)
      : top_(top), bottom_(bottom), left_(left), right_(right) {}

  constexpr AxisPadding vertical() const { return {same_, top_, bottom_}; }
  constexpr AxisPadding horizontal() const { return {same_, left_, right_}; }
  // Whether this can be the padding of a sequence; and that padding, for images of height 1.
  constexpr bool fits_sequences() const { return top_ == bottom_ && left_ == right_; }
  constexpr Padding of_sequence() const { return same_ ? *this : Padding(0, 0, top_, right_); }

  friend constexpr bool operator==(const Padding&, const Padding&) = default;
  // "0" for kSame, "1" for kValid, or "[1,1,2,2]": the text of runs
  // (trainers/core/run_fingerprint).
  std::string str() const;

 private:
  bool same_ = false;
  int top_ = 0, bottom_ = 0, left_ = 0, right_ = 0;

  struct Same {};
  constexpr explicit Padding(Same) : same_(true) {}
};

inline constexpr Padding Padding::kSame{Padding::Same{}};
inline constexpr Padding Padding::kValid{0};

}  // namespace belfry
