#include "belfry/framework/base/not_finite.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <gtest/gtest.h>

#include "belfry/framework/base/tensor.h"

namespace belfry {
namespace not_finite_test {

std::string found(const Tensor& tensor) {
  const auto bad = find_not_finite(tensor.dtype(), {tensor.raw(), tensor.bytes()});
  return bad ? bad->str() : "none";
}

template <class T>
std::string found_in(std::vector<T> values) {
  return found(Tensor({std::ssize(values)}, values));
}

TEST(FindNotFinite, NamesTheFirstElementAndWhatItIs) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  EXPECT_EQ(found_in<float>({1, F::infinity(), F::quiet_NaN()}), "inf at element 1");
  EXPECT_EQ(found_in<float>({F::quiet_NaN(), 0}), "nan at element 0");
  EXPECT_EQ(found_in<float>({0, 0, -F::signaling_NaN()}), "nan at element 2");
  EXPECT_EQ(found_in<double>({D::max(), -D::infinity()}), "-inf at element 1");
}

TEST(FindBeyond, NamesTheFirstElementThatIsTooLarge) {
  const auto found_beyond = [](double limit, const Tensor& tensor) {
    const auto bad = find_beyond(limit, tensor.dtype(), {tensor.raw(), tensor.bytes()});
    return bad ? bad->str() : "none";
  };
  EXPECT_EQ(found_beyond(8, Tensor({3}, std::vector<float>{8, -8.5F, 9})), "-8.5 at element 1");
  EXPECT_EQ(found_beyond(8, Tensor({2}, std::vector<double>{-8, 8})), "none");
  EXPECT_EQ(found_beyond(8, Tensor({2}, std::vector<double>{9, std::nan("")})), "9 at element 0");
  EXPECT_EQ(found_beyond(8, Tensor({2}, std::vector<double>{-8, std::nan("")})),
            "nan at element 1");
  const std::uint16_t bf16[] = {0x4100, 0xC180};  // 8, -16
  EXPECT_EQ(find_beyond(8, DType::kBF16, std::as_bytes(std::span(bf16)))->str(),
            "-16 at element 1");
}

// It looks at blocks of 1,024 elements first.
TEST(FindNotFinite, FindsTheFirstElementOfAnyBlock) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t at : {1023, 1024, 2047, 2500}) {
    std::vector<float> values(2501, 1.5F);
    EXPECT_EQ(found_in(values), "none");
    values[at] = -kInfinity;
    values.back() = -kInfinity;
    EXPECT_EQ(found_in(values), "-inf at element " + std::to_string(at));
  }
}

TEST(FindNotFinite, MayLookForNanAlone) {
  using F = std::numeric_limits<float>;
  const Tensor both({3}, std::vector<float>{F::infinity(), -F::infinity(), F::quiet_NaN()});
  const auto nan = find_nan(DType::kF32, {both.raw(), both.bytes()});
  ASSERT_TRUE(nan);
  EXPECT_EQ(nan->str(), "nan at element 2");
  EXPECT_FALSE(find_nan(DType::kF32, {both.raw(), 2 * sizeof(float)}));
}

TEST(FindNotFinite, TakesExtremesForFinite) {
  using F = std::numeric_limits<float>;
  EXPECT_EQ(found_in<float>({F::max(), F::lowest(), F::denorm_min(), -0.0F}), "none");
  EXPECT_EQ(found_in<double>({1e308, -1e308}), "none");
  EXPECT_EQ(found_in<float>({}), "none");
}

TEST(FindNotFinite, KnowsTheSixteenBitTypesAndLeavesOthersAlone) {
  const auto of_bits = [](DType dtype, std::uint16_t bits) {
    Tensor tensor({1}, dtype);
    std::memcpy(tensor.mutable_raw(), &bits, sizeof bits);
    return found(tensor);
  };
  EXPECT_EQ(of_bits(DType::kF16, 0x7C00), "inf at element 0");
  EXPECT_EQ(of_bits(DType::kF16, 0xFC01), "nan at element 0");
  EXPECT_EQ(of_bits(DType::kF16, 0x7BFF), "none");
  EXPECT_EQ(of_bits(DType::kBF16, 0xFF80), "-inf at element 0");
  EXPECT_EQ(of_bits(DType::kBF16, 0x7F7F), "none");
  EXPECT_EQ(found_in<std::int32_t>({-1, 0x7F800000}), "none");
  EXPECT_EQ(found_in<std::int64_t>({-1, 0x7FF0000000000000}), "none");
  EXPECT_EQ(found_in<std::uint8_t>({255}), "none");
}

}  // namespace not_finite_test
}  // namespace belfry
