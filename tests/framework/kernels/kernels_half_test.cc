// Conversions of 16-bit types, exhaustively, and sums of them, for every instruction set that this
// processor has.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry::kernels {
namespace kernels_half_test {

// A format by its numbers of bits for exponent and fraction, computed by plain arithmetic.
struct Format {
  DType dtype;
  int exponent, fraction;

  int bias() const { return (1 << (exponent - 1)) - 1; }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent) - 1) << fraction);
  }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
  double value(std::uint16_t bits) const {
    const int rest = bits & 0x7fff, high = rest >> fraction, low = rest & ((1 << fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
    if (rest == infinity()) return sign * std::numeric_limits<double>::infinity();
    if (high == 0) return sign * std::ldexp(low, 1 - bias() - fraction);
    return sign * std::ldexp(low + (1 << fraction), high - bias() - fraction);
  }
};

constexpr Format kFormats[] = {{DType::kF16, 5, 10}, {DType::kBF16, 8, 7}};

// f(format, conversion) for every format and instruction set.
template <class F>
void for_each_path(const F& f) {
  for (const Format& format : kFormats)
    for (const HalfPath path : half_paths()) {
      SCOPED_TRACE(cat(name_of(format.dtype), ", path ", static_cast<int>(path)));
      f(format, half_conversion(format.dtype, path));
    }
}

std::vector<std::uint16_t> all_bits() {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

std::vector<float> widened(const HalfConversion& convert, const std::vector<std::uint16_t>& bits) {
  std::vector<float> wide(bits.size());
  convert.widen(bits.data(), wide.data(), static_cast<std::int64_t>(bits.size()));
  return wide;
}

std::vector<std::uint16_t> narrowed(const HalfConversion& convert, const std::vector<float>& wide) {
  std::vector<std::uint16_t> bits(wide.size());
  convert.narrow(wide.data(), bits.data(), static_cast<std::int64_t>(wide.size()));
  return bits;
}

TEST(Half, WideningIsExactForEveryValue) {
  const std::vector<std::uint16_t> bits = all_bits();
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const std::vector<float> wide = widened(convert, bits);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const auto expected = static_cast<float>(format.value(bits[i]));
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected))
            << i;
    }
  });
}

TEST(Half, NarrowingGivesEveryValueBack) {
  const std::vector<std::uint16_t> bits = all_bits();
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const std::vector<std::uint16_t> back = narrowed(convert, widened(convert, bits));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (format.is_nan(bits[i]))
        ASSERT_TRUE(format.is_nan(back[i])) << i;
      else
        ASSERT_EQ(back[i], bits[i]) << i;
    }
  });
}

// Takes values around the middle of each two neighbours. Infinity stands for the next value.
TEST(Half, NarrowingRoundsToNearestAndTiesToEven) {
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const int infinity = format.infinity();
    for (int low = 0; low < infinity; ++low) {
      const double below = format.value(static_cast<std::uint16_t>(low));
      const double step = format.value(static_cast<std::uint16_t>(low | 1)) -
                          format.value(static_cast<std::uint16_t>(low & ~1));
      const auto middle = static_cast<float>(below + step / 2);
      const float wide[] = {std::nextafter(middle, 0.0f), middle,
                            std::nextafter(middle, std::numeric_limits<float>::infinity())};
      std::uint16_t bits[3];
      convert.narrow(wide, bits, 3);
      ASSERT_EQ(bits[0], low);
      ASSERT_EQ(bits[1], low + (low & 1));
      ASSERT_EQ(bits[2], low + 1);
    }
    EXPECT_EQ(narrowed(convert, {std::numeric_limits<float>::max()})[0], infinity);
  });
}

std::vector<float> many_floats() {
  std::vector<float> wide;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099)
    wide.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return wide;
}

TEST(Half, EveryInstructionSetHasTheBitsOfTheScalarForm) {
  const std::vector<std::uint16_t> bits = all_bits();
  const std::vector<float> wide = many_floats();
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const HalfConversion scalar = half_conversion(format.dtype, HalfPath::kScalar);
    const auto as_bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    EXPECT_TRUE(
        std::ranges::equal(widened(convert, bits), widened(scalar, bits), {}, as_bits, as_bits));
    EXPECT_EQ(narrowed(convert, wide), narrowed(scalar, wide));
  });
}

TEST(Half, RowsOfAnyLengthAreConvertedAndNoMore) {
  for_each_path([&](const Format&, const HalfConversion& convert) {
    for (std::size_t size = 0; size < 40; ++size) {
      std::vector<float> wide(41, -1);
      const std::vector<std::uint16_t> zeros(41);
      convert.widen(zeros.data(), wide.data(), static_cast<std::int64_t>(size));
      std::vector<std::uint16_t> bits(41, 7);
      convert.narrow(wide.data(), bits.data(), static_cast<std::int64_t>(size));
      for (std::size_t i = 0; i < 41; ++i) {
        ASSERT_EQ(wide[i], i < size ? 0 : -1) << size;
        ASSERT_EQ(bits[i], i < size ? 0 : 7) << size;
      }
    }
  });
}

// Sums of rows, one per tower.
class HalfSum {
 public:
  HalfSum(const HalfConversion& convert, std::vector<std::vector<std::uint16_t>> rows)
      : convert_(convert), rows_(std::move(rows)) {}

  std::vector<std::uint16_t> sum(float divisor = 1) {
    std::vector<std::uint16_t> y(rows_[0].size());
    void* const output[] = {y.data()};
    const std::vector<void*> inputs = pointers();
    tree_sum_16(convert_, inputs, output, divisor, 0, size());
    return y;
  }
  // Sums into the inputs, on every tower.
  const std::vector<std::vector<std::uint16_t>>& in_place(float divisor) {
    const std::vector<void*> both = pointers();
    tree_sum_16(convert_, both, both, divisor, 0, size() / 3);
    tree_sum_16(convert_, both, both, divisor, size() / 3, size());
    return rows_;
  }
  // Computes element i by one conversion and one addition at a time.
  std::uint16_t expected(std::size_t i, float divisor) const {
    const float sum = tree(0, rows_.size(), i) / divisor;
    return narrowed(convert_, {sum})[0];
  }

 private:
  std::vector<void*> pointers() {
    std::vector<void*> result;
    for (auto& row : rows_) result.push_back(row.data());
    return result;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_[0].size()); }
  float tree(std::size_t first, std::size_t count, std::size_t i) const {
    if (count == 1) return widened(convert_, {rows_[first][i]})[0];
    const std::size_t middle = (count + 1) / 2;
    return tree(first, middle, i) + tree(first + middle, count - middle, i);
  }

  HalfConversion convert_;
  std::vector<std::vector<std::uint16_t>> rows_;
};

TEST(HalfSum, IsTheTreeInF32RoundedOnce) {
  constexpr std::size_t kSize = 1300;
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const HalfConversion scalar = half_conversion(format.dtype, HalfPath::kScalar);
    std::mt19937 random(7);
    for (const std::size_t towers : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 40}) {
      std::vector<std::vector<std::uint16_t>> rows(towers, std::vector<std::uint16_t>(kSize));
      for (auto& row : rows)
        for (std::uint16_t& bits : row) bits = static_cast<std::uint16_t>(random());
      for (const float divisor : {1.0f, static_cast<float>(towers)}) {
        HalfSum sums(convert, rows), plain(scalar, rows);
        const std::vector<std::uint16_t> y = sums.sum(divisor), in_scalar = plain.sum(divisor);
        for (std::size_t i = 0; i < kSize; ++i) {
          const std::uint16_t expected = plain.expected(i, divisor);
          if (format.is_nan(expected)) {
            ASSERT_TRUE(format.is_nan(y[i]) && format.is_nan(in_scalar[i])) << i;
          } else {
            ASSERT_EQ(y[i], expected) << towers << " towers, element " << i;
            ASSERT_EQ(in_scalar[i], expected);
          }
        }
        for (const std::vector<std::uint16_t>& row : sums.in_place(divisor)) ASSERT_EQ(row, y);
      }
    }
  });
}

// In f32, 65504 and 1e30 lose the small terms, so the order decides.
TEST(HalfSum, KeepsTheOrderOfTheTree) {
  const float large[] = {65504, 1e30f}, small[] = {0x1p-9f, 1};
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const std::size_t f = format.dtype == DType::kF16 ? 0 : 1;
    const std::vector<std::uint16_t> bits =
        narrowed(convert, {large[f], small[f], -large[f], 0.0f});
    const auto sum = [&](std::vector<std::size_t> order) {
      std::vector<std::vector<std::uint16_t>> rows;
      for (const std::size_t which : order) rows.push_back({bits[which]});
      return HalfSum(convert, rows).sum()[0];
    };
    EXPECT_EQ(sum({0, 1, 2}), bits[3]);        // (large + small) - large
    EXPECT_EQ(sum({0, 2, 1}), bits[1]);        // (large - large) + small
    EXPECT_EQ(sum({0, 2, 1, 3}), bits[1]);     // (large - large) + (small + 0)
    EXPECT_EQ(sum({0, 1, 2, 3}), bits[3]);     // (large + small) + (-large + 0)
    EXPECT_EQ(sum({0, 2, 3, 1, 3}), bits[1]);  // ((large - large) + 0) + (small + 0)
  });
}

// 2048 + 1 is no f16, and 256 + 1 no bf16, but f32 holds these partial sums.
TEST(HalfSum, DoesNotRoundOnTheWay) {
  for_each_path([&](const Format& format, const HalfConversion& convert) {
    const float large = format.dtype == DType::kF16 ? 2048 : 256;
    const std::vector<std::uint16_t> bits = narrowed(convert, {large, 1, large + 2});
    HalfSum sum(convert, {{bits[0]}, {bits[1]}, {bits[1]}});
    EXPECT_EQ(sum.sum()[0], bits[2]);
  });
}

}  // namespace kernels_half_test
}  // namespace belfry::kernels
