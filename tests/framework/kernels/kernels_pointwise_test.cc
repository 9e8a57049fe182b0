// Pointwise loops against an index-by-index evaluation, whole and in ranges.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/kernels/broadcast.h"
#include "belfry/framework/kernels/pointwise.h"

namespace belfry::kernels {
namespace kernels_pointwise_test {

using Dims = std::vector<std::int64_t>;

struct Relu {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x <= T(0) ? T(0) : x;
  }
};
struct Minus {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    return a - b;
  }
};
struct Less {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct MultiplyAdd {
  template <class T>
  BELFRY_HD T operator()(T a, T b, T c) const {
    return a * b + c;
  }
};

template <class T>
std::vector<T> ramp(std::int64_t n, T first) {
  std::vector<T> x(static_cast<std::size_t>(n));
  std::iota(x.begin(), x.end(), first);
  return x;
}

std::int64_t elements(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// The element of an operand of shape `dims` that goes into element `i` of the output.
std::int64_t source(const Dims& dims, const Dims& output, std::int64_t i) {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  for (std::size_t from_end = 1; from_end <= output.size(); ++from_end) {
    const std::int64_t index = i % output[output.size() - from_end];
    i /= output[output.size() - from_end];
    if (from_end > dims.size()) continue;
    const std::int64_t size = dims[dims.size() - from_end];
    if (size != 1) offset += index * stride;
    stride *= size;
  }
  return offset;
}

template <class T>
void expect_broadcast(const Dims& a_dims, const Dims& b_dims, const Dims& output) {
  const std::vector<T> a = ramp(elements(a_dims), T(1000));
  const std::vector<T> b = ramp(elements(b_dims), T(3));
  const Broadcast broadcast(a_dims, b_dims);
  const std::int64_t n = elements(output);
  std::vector<T> y(static_cast<std::size_t>(n));
  for (std::int64_t shift = 0; shift < 32; ++shift) {
    std::fill(y.begin(), y.end(), T(-1));
    const std::int64_t middle = std::min(shift, n);
    map_broadcast(Minus{}, broadcast, 0, middle, y.data(), a.data(), b.data());
    map_broadcast(Minus{}, broadcast, middle, n, y.data(), a.data(), b.data());
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(y[i], a[source(a_dims, output, i)] - b[source(b_dims, output, i)])
          << "element " << i << ", range from " << middle;
    }
  }
}

template <class T>
class Pointwise : public testing::Test {};
using Types = testing::Types<float, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(Pointwise, Types);

TYPED_TEST(Pointwise, MapsOneToThreeInputs) {
  const std::vector<TypeParam> a = ramp<TypeParam>(100, -50);
  const std::vector<TypeParam> b = ramp<TypeParam>(100, 7);
  std::vector<TypeParam> y(100);
  map(Relu{}, 0, 100, y.data(), a.data());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], i < 50 ? 0 : a[i]);
  map(Minus{}, 0, 100, y.data(), a.data(), b.data());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], -57);
  map(MultiplyAdd{}, 0, 100, y.data(), a.data(), b.data(), a.data());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], a[i] * b[i] + a[i]);
}

TYPED_TEST(Pointwise, WritesItsRangeOnly) {
  const std::vector<TypeParam> x = ramp<TypeParam>(100, 1);
  for (std::int64_t begin = 0; begin < 32; ++begin) {
    std::vector<TypeParam> y(100, -1);
    map(Relu{}, begin, 100 - begin, y.data(), x.data());
    for (std::int64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(y[i], i < begin || i >= 100 - begin ? TypeParam(-1) : x[i]);
    }
  }
}

TYPED_TEST(Pointwise, WorksInPlace) {
  std::vector<TypeParam> x = ramp<TypeParam>(1000, -500);
  map(Relu{}, 0, 1000, x.data(), x.data());
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(x[i], i < 500 ? 0 : TypeParam(i) - 500);
}

TYPED_TEST(Pointwise, BroadcastsScalars) {
  expect_broadcast<TypeParam>({67}, {}, {67});
  expect_broadcast<TypeParam>({}, {5, 17}, {5, 17});
  expect_broadcast<TypeParam>({1, 1}, {1}, {1, 1});
}

TYPED_TEST(Pointwise, BroadcastsRows) {
  expect_broadcast<TypeParam>({40, 10}, {10}, {40, 10});
  expect_broadcast<TypeParam>({3}, {400, 3}, {400, 3});
  expect_broadcast<TypeParam>({2, 3, 4, 16}, {1, 4, 16}, {2, 3, 4, 16});
  expect_broadcast<TypeParam>({3, 300}, {300}, {3, 300});
  expect_broadcast<TypeParam>({3, 700}, {1, 700}, {3, 700});
}

TYPED_TEST(Pointwise, BroadcastsColumns) {
  expect_broadcast<TypeParam>({40, 10}, {40, 1}, {40, 10});
  expect_broadcast<TypeParam>({7, 1}, {7, 33}, {7, 33});
}

TYPED_TEST(Pointwise, BroadcastsAnyRank) {
  expect_broadcast<TypeParam>({5, 1, 6}, {4, 1}, {5, 4, 6});
  expect_broadcast<TypeParam>({2, 1, 3, 1, 5}, {1, 4, 1, 2, 1}, {2, 4, 3, 2, 5});
  expect_broadcast<TypeParam>({3, 5, 5, 7}, {3, 1, 1, 7}, {3, 5, 5, 7});
  expect_broadcast<TypeParam>({6, 1}, {1, 9}, {6, 9});
}

TYPED_TEST(Pointwise, BroadcastsWhatHasNoElements) {
  expect_broadcast<TypeParam>({0, 3}, {3}, {0, 3});
  expect_broadcast<TypeParam>({2, 0}, {2, 0}, {2, 0});
  expect_broadcast<TypeParam>({2, 0, 3}, {2, 0, 3}, {2, 0, 3});
  expect_broadcast<TypeParam>({2, 4, 0}, {4, 0}, {2, 4, 0});
  expect_broadcast<TypeParam>({4, 1}, {2, 4, 0}, {2, 4, 0});
}

TYPED_TEST(Pointwise, BroadcastsInPlace) {
  std::vector<TypeParam> x = ramp<TypeParam>(1000, 0);
  const std::vector<TypeParam> row = ramp<TypeParam>(10, 0);
  map_broadcast(Minus{}, Broadcast(Dims{100, 10}, Dims{10}), 0, 1000, x.data(), x.data(),
                row.data());
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(x[i], i / 10 * 10);
}

TEST(Pointwise, MayChangeTheType) {
  const std::vector<float> a = {1, 2, 3};
  bool y[3];
  map_broadcast(Less{}, Broadcast(Dims{3}, Dims{}), 0, 3, y, a.data(), &a[1]);
  EXPECT_TRUE(y[0]);
  EXPECT_FALSE(y[1]);
  EXPECT_FALSE(y[2]);
}

TEST(Pointwise, ReluKeepsNan) {
  const std::vector<float> x(33, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> y(33, 0);
  map(Relu{}, 0, 33, y.data(), x.data());
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

}  // namespace kernels_pointwise_test
}  // namespace belfry::kernels
