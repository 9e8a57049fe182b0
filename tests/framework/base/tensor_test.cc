#include "belfry/framework/base/tensor.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#include "belfry/framework/base/tensor_memory.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace tensor_test {

using ::testing::HasSubstr;

TEST(Tensor, PrintsAsNumpyDoes) {
  EXPECT_EQ(Tensor({2, 2}, std::vector{44.f, 56.f, 98.f, 128.f}).str(),
            "[[ 44.  56.]\n [ 98. 128.]]");
  EXPECT_EQ(floats({0.5f, 1.25f, -3}).str(), "[ 0.5   1.25 -3.  ]");
  EXPECT_EQ(Tensor({2}, std::vector<std::uint8_t>{0, 255}).str(), "[  0 255]");
  EXPECT_EQ(Tensor({2}, std::vector<bool>{true, false}).str(), "[ True False]");
  EXPECT_EQ(Tensor({1}, std::vector<bool>{true}).str(), "[ True]");
  EXPECT_EQ(Tensor({2, 1, 2}, std::vector<std::int64_t>{1, 2, 3, 4}).str(),
            "[[[1 2]]\n\n [[3 4]]]");
  EXPECT_EQ(Tensor(Shape{0}, DType::kF32).str(), "[]");
  EXPECT_EQ(floats({1e30f, -0.f}).str(), "[ 1.e+30 -0.e+00]");
  EXPECT_EQ(floats({614.86151f, 11.191472f, 0.019686555f}).str(),
            "[6.1486151e+02 1.1191472e+01 1.9686555e-02]");
  EXPECT_EQ(floats({NAN, INFINITY, -1.5f}).str(), "[ nan  inf -1.5]");
  EXPECT_EQ(Tensor({1}, std::vector{1.0 / 3}).str(), "[0.33333333]");
}

TEST(Tensor, PrintsScalarsWithAllTheirDigits) {
  EXPECT_EQ(Tensor(0.5f).str(), "0.5");
  EXPECT_EQ(Tensor(1.0f).str(), "1.0");
  EXPECT_EQ(Tensor(0.84147096f).str(), "0.84147096");
  EXPECT_EQ(Tensor(0.8414709848078965).str(), "0.8414709848078965");
  EXPECT_EQ(Tensor(1e-5).str(), "1e-05");
  EXPECT_EQ(Tensor(std::int32_t{-3}).str(), "-3");
}

TEST(Tensor, PrintsHalves) {
  const auto f16 = [](std::vector<std::uint16_t> bits) {
    Tensor halves({std::ssize(bits)}, DType::kF16);
    std::memcpy(halves.mutable_raw(), bits.data(), halves.bytes());
    return halves.str();
  };
  EXPECT_EQ(f16({0x3800, 0xc000}), "[ 0.5 -2. ]");
  EXPECT_EQ(f16({0x7bff}), "[65504.]");
  EXPECT_EQ(f16({0x0001}), "[5.9604645e-08]");
  EXPECT_EQ(f16({0x7c00}), Tensor({1}, std::vector{INFINITY}).str());
  Tensor scalar({}, DType::kBF16);
  const std::uint16_t bits = 0x3dcd;
  std::memcpy(scalar.mutable_raw(), &bits, sizeof bits);
  EXPECT_EQ(scalar.str(), "0.100097656");
}

TEST(Tensor, BreaksLongLinesAndPrintsTheEdgesOfLongAxes) {
  std::vector<std::int32_t> many(1001);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(Tensor({1001}, many).str(), "[   0    1    2 ...  998  999 1000]");
  many.resize(30);
  EXPECT_EQ(Tensor({30}, many).str(),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29]");
}

TEST(Tensor, StartsAsZeros) {
  EXPECT_EQ(Tensor({3}, DType::kF32), floats({0, 0, 0}));
  EXPECT_EQ(Tensor().elements(), 0);
  EXPECT_EQ(Tensor({2, 3}, DType::kF64).bytes(), 48u);
}

TEST(Tensor, CopiesShareUntilOneIsWritten) {
  Tensor a = floats({1, 2});
  Tensor b = a;
  EXPECT_EQ(a.raw(), b.raw());
  b.mutable_data<float>()[0] = 9;
  EXPECT_NE(a.raw(), b.raw());
  EXPECT_EQ(a, floats({1, 2}));
  EXPECT_EQ(b, floats({9, 2}));
  const std::byte* const own = b.raw();
  b.mutable_data<float>()[1] = 8;  // alone now: in place
  EXPECT_EQ(b.raw(), own);
}

TEST(Tensor, IsEqualByTypeShapeAndBytes) {
  EXPECT_FALSE(Tensor({2}, DType::kF32) == Tensor({2}, DType::kI32));
  EXPECT_FALSE(Tensor({2}, DType::kF32) == Tensor({1, 2}, DType::kF32));
  EXPECT_FALSE(floats({0.f}) == floats({-0.f}));
}

TEST(Tensor, RefusesWrongCountsTypesAndShapes) {
  EXPECT_THAT(message_of<InvalidArgument>([] { Tensor({2}, std::vector{1.f}); }),
              HasSubstr("shape [2] has 2 elements, not 1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { Tensor(1.f).data<double>(); }),
              HasSubstr("a f32 tensor was accessed as f64"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                floats({1, 2}).item<float>();
              }),
              HasSubstr("2 elements, not 1"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                Tensor({kUnknownSize, 2}, DType::kF32);
              }),
              HasSubstr("[?,2]"));
  EXPECT_THAT(message_of<InvalidArgument>([] { Tensor({-7}, DType::kF32); }), HasSubstr("[-7]"));
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                Tensor({huge, huge}, DType::kF32);
              }),
              HasSubstr("too many elements"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                Tensor({huge, huge / 8}, DType::kF64);
              }),
              HasSubstr("too many elements"));
}

TEST(Tensor, TooLargeForTheMachineIsOutOfMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end the program where memory is short";
  EXPECT_THAT(message_of<OutOfMemory>([] { Tensor({std::int64_t{1} << 55}, DType::kF64); }),
              HasSubstr("host: cannot allocate"));
}

TEST(Tensor, IsAlignedAndReturnsItsMemory) {
  const std::int64_t before = host_allocator().in_use();
  {
    const Tensor tensor({100}, DType::kF32);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0u);
    EXPECT_EQ(host_allocator().in_use(), before + 400);
  }
  EXPECT_EQ(host_allocator().in_use(), before);
}

TEST(Tensor, IsWhereTensorMemorySays) {
  auto one = std::make_shared<Allocator>("one"), other = std::make_shared<Allocator>("other");
  const std::weak_ptr<Allocator> kept = one;
  Tensor tensor = floats({1, 2}), written = tensor;
  {
    const TensorMemory memory(one);
    {
      const TensorMemory inner(other);
      const Tensor of_other({3}, DType::kF64);
      EXPECT_EQ(other->in_use(), 24);
    }
    written.mutable_data<float>()[0] = 5;  // a copy
    tensor = Tensor({100}, DType::kF32);
    EXPECT_EQ(one->in_use(), 400 + 8);
  }
  const Tensor of_host({100}, DType::kF32);
  EXPECT_EQ(one->in_use(), 400 + 8);
  EXPECT_EQ(other->in_use(), 0);
  EXPECT_EQ(written, floats({5, 2}));
  one = nullptr;
  EXPECT_FALSE(kept.expired()) << "its tensors keep it";
  tensor = written = of_host;
  EXPECT_TRUE(kept.expired());
}

TEST(Shape, IsCompatibleWhereUnknownDimensionsFit) {
  const Shape known{2, 3}, half{kUnknownSize, 3}, other{2, 4};
  EXPECT_TRUE(known.compatible(half) && half.compatible(known));
  EXPECT_FALSE(half.compatible(other));
  EXPECT_FALSE(known.compatible(Shape{2}));
  EXPECT_EQ(half.elements(), kUnknownSize);
  EXPECT_EQ(known.elements(), 6);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(half.str(), "[?,3]");
}

}  // namespace tensor_test
}  // namespace belfry
