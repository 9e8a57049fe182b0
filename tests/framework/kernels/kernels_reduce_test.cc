// Reductions against their definition written out, and against sums in long double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/kernels/reduce.h"

namespace belfry::kernels {
namespace kernels_reduce_test {

template <class T>
std::vector<T> random_values(std::int64_t n, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& value : x) value = static_cast<T>(std::generate_canonical<double, 53>(random) - 0.25);
  return x;
}

// Adds the second half to the first until `width` terms are left.
template <class T>
std::vector<T> halve(std::vector<T> x, std::size_t width) {
  while (x.size() > width) {
    const std::size_t half = x.size() / 2;
    for (std::size_t i = 0; i < half; ++i) x[i] += x[i + half];
    x.resize(half);
  }
  return x;
}

// Adds neighbours until one is left, each a full binary tree but the last.
template <class T>
T add_pairwise(std::vector<T> x) {
  while (x.size() > 1) {
    std::vector<T> next;
    for (std::size_t i = 0; i + 1 < x.size(); i += 2) next.push_back(x[i] + x[i + 1]);
    if (x.size() % 2 == 1) next.push_back(x.back());
    x = next;
  }
  return x[0];
}

template <class T>
T reference_sum(std::vector<T> x) {
  std::vector<T> blocks;
  x.resize((x.size() + 1023) / 1024 * 1024, T(-0.0));
  for (auto block = x.begin(); block != x.end(); block += 1024) {
    std::vector<T> lanes;
    for (auto group = block; group != block + 1024; group += 128) {
      const std::vector<T> folded = halve(std::vector<T>(group, group + 128), 16);
      lanes.insert(lanes.end(), folded.begin(), folded.end());
    }
    blocks.push_back(halve(lanes, 1)[0]);
  }
  return add_pairwise(blocks);
}

template <class T>
T reference_tree(const std::vector<std::vector<T>>& x, std::size_t first, std::size_t count,
                 std::size_t i) {
  if (count == 1) return x[first][i];
  const std::size_t left = (count + 1) / 2;
  return static_cast<T>(reference_tree(x, first, left, i) +
                        reference_tree(x, first + left, count - left, i));
}

template <class T>
class Reduce : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, Types);

TYPED_TEST(Reduce, SumsInTheDocumentedOrder) {
  for (const std::int64_t n : {1, 2, 3, 10, 16, 17, 100, 127, 128, 129, 500, 1023, 1024, 1025, 2048,
                               5000, 7 * 1024 + 3, 100'000}) {
    for (const std::int64_t shift : {0, 1, 5, 16}) {
      const std::vector<TypeParam> x = random_values<TypeParam>(n + shift);
      EXPECT_EQ(sum(x.data() + shift, n),
                reference_sum(std::vector<TypeParam>(x.begin() + shift, x.end())))
          << n << " terms from " << shift;
    }
  }
}

TYPED_TEST(Reduce, SumOfNothingIsTheNeutralZero) {
  EXPECT_TRUE(std::signbit(sum<TypeParam>(nullptr, 0)));
  const TypeParam negative[] = {TypeParam(-0.0), TypeParam(-0.0)};
  EXPECT_TRUE(std::signbit(sum(negative, 2)));
  EXPECT_EQ(sum<TypeParam>(nullptr, 0), 0);
}

TYPED_TEST(Reduce, SumsMillionsOfTermsAccurately) {
  const std::vector<TypeParam> x(10'000'000, TypeParam(0.1));
  const double exact = 1e7 * static_cast<double>(TypeParam(0.1));
  EXPECT_NEAR(sum(x.data(), 10'000'000) / exact, 1, 4 * std::numeric_limits<TypeParam>::epsilon());
}

TYPED_TEST(Reduce, SumsRowsAsItSumsArrays) {
  for (const std::int64_t columns : {1, 10, 16, 100, 784, 3000}) {
    const std::vector<TypeParam> x = random_values<TypeParam>(9 * columns);
    std::vector<TypeParam> y(9, -1);
    row_sums(x.data(), columns, y.data(), 2, 8);
    for (std::int64_t r = 0; r < 9; ++r) {
      const bool inside = r >= 2 && r < 8;
      EXPECT_EQ(y[r], inside ? sum(x.data() + r * columns, columns) : TypeParam(-1));
    }
  }
}

TYPED_TEST(Reduce, FindsRowMaxima) {
  constexpr TypeParam kNan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const std::int64_t columns : {1, 3, 16, 130, 2000}) {
    std::vector<TypeParam> x = random_values<TypeParam>(4 * columns);
    for (TypeParam& value : x) value -= 10;
    x[1 * columns + columns / 2] = 5;
    x[2 * columns + columns - 1] = kNan;
    x[3 * columns] = std::numeric_limits<TypeParam>::infinity();
    std::vector<TypeParam> y(4);
    row_maxima(x.data(), columns, y.data(), 0, 4);
    EXPECT_EQ(y[0], *std::max_element(x.begin(), x.begin() + columns));
    EXPECT_EQ(y[1], 5);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], std::numeric_limits<TypeParam>::infinity());
  }
}

TYPED_TEST(Reduce, PropagatesNanFromEveryPlaceOfARow) {
  for (std::size_t place = 0; place < 150; ++place) {
    std::vector<TypeParam> x(150, 1);
    x[place] = std::numeric_limits<TypeParam>::quiet_NaN();
    TypeParam y = 0;
    row_maxima(x.data(), 150, &y, 0, 1);
    EXPECT_TRUE(std::isnan(y)) << place;
    EXPECT_TRUE(std::isnan(sum(x.data(), 150))) << place;
  }
}

TYPED_TEST(Reduce, SumsColumnsInTheDocumentedOrder) {
  for (const std::int64_t rows : {1, 5, 8, 9, 64, 100, 1000}) {
    constexpr std::int64_t kColumns = 37;
    const std::vector<TypeParam> x = random_values<TypeParam>(rows * kColumns);
    std::vector<TypeParam> y(kColumns);
    column_sums(x.data(), rows, kColumns, y.data(), 0, kColumns);
    for (std::int64_t c = 0; c < kColumns; ++c) {
      std::vector<TypeParam> blocks;
      for (std::int64_t r = 0; r < rows; r += 8) {
        std::vector<TypeParam> block(8, TypeParam(-0.0));
        for (std::int64_t k = 0; k < 8 && r + k < rows; ++k) block[k] = x[(r + k) * kColumns + c];
        blocks.push_back(halve(block, 1)[0]);
      }
      EXPECT_EQ(y[c], add_pairwise(blocks)) << rows << " rows, column " << c;
    }
  }
}

TYPED_TEST(Reduce, SumsColumnsAlikeInEveryRange) {
  constexpr std::int64_t kRows = 77;
  constexpr std::int64_t kColumns = 1500;
  const std::vector<TypeParam> x = random_values<TypeParam>(kRows * kColumns);
  std::vector<TypeParam> whole(kColumns);
  column_sums(x.data(), kRows, kColumns, whole.data(), 0, kColumns);
  for (std::int64_t c = 0; c < kColumns; ++c) {
    long double exact = 0;
    for (std::int64_t r = 0; r < kRows; ++r) exact += x[r * kColumns + c];
    // Seven levels of the tree, each rounding by half an ulp of at most sum |x| <= 77 * 0.75.
    EXPECT_NEAR(whole[c], static_cast<double>(exact),
                7 * 58 * std::numeric_limits<TypeParam>::epsilon() / 2);
  }
  for (std::int64_t shift = 1; shift < 32; ++shift) {
    std::vector<TypeParam> parts(kColumns);
    column_sums(x.data(), kRows, kColumns, parts.data(), 0, shift);
    column_sums(x.data(), kRows, kColumns, parts.data(), shift, kColumns);
    EXPECT_EQ(whole, parts);
  }
}

template <class T>
class TreeSum : public testing::Test {
 protected:
  // Fills inputs[k] and their pointers.
  void fill(std::size_t towers, std::int64_t n) {
    inputs_.clear();
    pointers_.clear();
    for (std::size_t k = 0; k < towers; ++k) {
      inputs_.emplace_back();
      for (const double value : random_values<double>(n, k + 1)) {
        inputs_.back().push_back(static_cast<T>(value * 1e6));
      }
    }
    original_ = inputs_;
    for (std::vector<T>& input : inputs_) pointers_.push_back(input.data());
  }
  std::vector<const void*> read() const { return {pointers_.begin(), pointers_.end()}; }
  T expected(std::int64_t i) const {
    return reference_tree(original_, 0, original_.size(), static_cast<std::size_t>(i));
  }

  std::vector<std::vector<T>> inputs_;
  std::vector<std::vector<T>> original_;
  std::vector<void*> pointers_;
};
using SumTypes = testing::Types<float, double, std::int32_t>;
TYPED_TEST_SUITE(TreeSum, SumTypes);

TYPED_TEST(TreeSum, IsTheBalancedTree) {
  constexpr std::int64_t kSize = 2500;
  for (const std::size_t towers : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 40}) {
    this->fill(towers, kSize);
    for (const std::int64_t shift : {0, 1, 7, 16, 31}) {
      std::vector<TypeParam> y(kSize, -1);
      void* const output[] = {y.data()};
      tree_sum<TypeParam>(this->read(), output, shift, kSize - shift);
      for (std::int64_t i = 0; i < kSize; ++i) {
        const bool inside = i >= shift && i < kSize - shift;
        ASSERT_EQ(y[i], inside ? this->expected(i) : TypeParam(-1)) << towers << " towers, " << i;
      }
    }
  }
}

TYPED_TEST(TreeSum, ReducesInPlaceOnEveryTower) {
  for (const std::size_t towers : {1, 2, 3, 6, 8, 11}) {
    this->fill(towers, 1500);
    tree_sum<TypeParam>(this->read(), this->pointers_, 0, 700);
    tree_sum<TypeParam>(this->read(), this->pointers_, 700, 1500);
    for (std::size_t k = 0; k < towers; ++k) {
      for (std::int64_t i = 0; i < 1500; ++i) ASSERT_EQ(this->inputs_[k][i], this->expected(i));
    }
  }
}

TYPED_TEST(TreeSum, TakesOutputsThatAreOneTensorOrSeveral) {
  for (const std::size_t towers : {2, 4, 8, 9}) {
    this->fill(towers, 1100);
    std::vector<TypeParam> other(1100, 0);
    std::vector<void*> outputs(towers, this->pointers_[1]);
    outputs.back() = other.data();
    tree_sum<TypeParam>(this->read(), outputs, 3, 1100);
    EXPECT_EQ(other[2], 0);
    EXPECT_EQ(this->inputs_[0], this->original_[0]);
    for (std::int64_t i = 3; i < 1100; ++i) {
      ASSERT_EQ(this->inputs_[1][i], this->expected(i));
      ASSERT_EQ(other[i], this->expected(i));
    }
  }
}

TYPED_TEST(TreeSum, MayOverwriteAnyInput) {
  for (std::size_t target = 0; target < 12; ++target) {
    this->fill(12, 100);
    tree_sum<TypeParam>(this->read(), {&this->pointers_[target], 1}, 0, 100);
    for (std::int64_t i = 0; i < 100; ++i) ASSERT_EQ(this->inputs_[target][i], this->expected(i));
  }
}

TYPED_TEST(Reduce, TreeMeanDividesOnceAtTheEnd) {
  const std::vector<TypeParam> a = random_values<TypeParam>(100, 1);
  const std::vector<TypeParam> b = random_values<TypeParam>(100, 2);
  const std::vector<TypeParam> c = random_values<TypeParam>(100, 3);
  const void* const inputs[] = {a.data(), b.data(), c.data()};
  std::vector<TypeParam> y(100);
  void* const output[] = {y.data()};
  tree_mean<TypeParam>(inputs, output, 3, 0, 100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(y[i], ((a[i] + b[i]) + c[i]) / 3);
  std::vector<TypeParam> copies[3] = {a, b, c};
  void* const in_place[] = {copies[0].data(), copies[1].data(), copies[2].data()};
  tree_mean<TypeParam>(in_place, in_place, 3, 0, 100);
  for (const std::vector<TypeParam>& copy : copies) EXPECT_EQ(copy, y);
}

TEST(TreeSumOfIntegers, Wraps) {
  const std::int32_t a = std::numeric_limits<std::int32_t>::max();
  const std::int32_t b = 1;
  const void* const inputs[] = {&a, &b};
  std::int32_t y = 0;
  void* const output[] = {&y};
  tree_sum<std::int32_t>(inputs, output, 0, 1);
  EXPECT_EQ(y, std::numeric_limits<std::int32_t>::min());
}

}  // namespace kernels_reduce_test
}  // namespace belfry::kernels
