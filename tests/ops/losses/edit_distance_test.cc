#include "belfry/ops/losses/edit_distance.h"

#include <string_view>

#include <gtest/gtest.h>

#include "belfry/ops/losses/ctc_best_path.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace edit_distance_test {

Builder distances() {
  return [](Inputs x) { return edit_distance(x[0], x[1], x[2], x[3]); };
}

Tensor letters(std::string_view text, std::int64_t most) {
  std::vector<std::int64_t> values(text.begin(), text.end());
  values.resize(static_cast<std::size_t>(most), -7);
  return Tensor({1, most}, values);
}
Tensor length(std::size_t n) {
  return Tensor({1}, std::vector<std::int64_t>{static_cast<std::int64_t>(n)});
}

double apart(std::string_view a, std::string_view b) {
  return doubles(
      compute(distances(), {letters(a, 10), length(a.size()), letters(b, 9), length(b.size())}))[0];
}

TEST(EditDistance, CountsLabelsToInsertRemoveAndReplace) {
  EXPECT_EQ(apart("kitten", "sitting"), 3);
  EXPECT_EQ(apart("intention", "execution"), 5);
  EXPECT_EQ(apart("abc", "abc"), 0);
  EXPECT_EQ(apart("", "abc"), 3);
  EXPECT_EQ(apart("abc", ""), 3);
  EXPECT_EQ(apart("", ""), 0);
  EXPECT_EQ(apart("ab", "ba"), 2);
}

TEST(EditDistance, TakesIntegersOfBothSizesAndNoLabelsAtAll) {
  const Tensor a({2, 2}, std::vector<std::int32_t>{1, 2, 3, 4});
  const Tensor two({2}, std::vector<std::int32_t>{2, 2}),
      none({2}, std::vector<std::int64_t>{0, 0});
  EXPECT_EQ(doubles(compute(distances(), {a, two, Tensor({2, 0}, DType::kI64), none})),
            (std::vector<double>{2, 2}));
}

TEST(EditDistance, KeepsItsContract) {
  const Tensor a({4, 3}, std::vector<std::int64_t>{1, 2, 3, 1, 1, 1, 3, 2, 1, 2, 2, 2});
  const Tensor b({4, 2}, std::vector<std::int64_t>{2, 3, 1, 1, 1, 3, 3, 3});
  const Tensor a_lengths({4}, std::vector<std::int64_t>{3, 2, 0, 3});
  const Tensor b_lengths({4}, std::vector<std::int64_t>{2, 2, 1, 0});
  check_op({.build = distances(), .inputs = {a, a_lengths, b, b_lengths}, .gradient = -1});
}

TEST(EditDistance, RefusesLengthsAndShapes) {
  EXPECT_THROW(compute(distances(), {letters("ab", 2), length(3), letters("a", 1), length(1)}),
               InvalidArgument);
  expect_refused(
      distances(),
      {{{2, 3}, DType::kI64}, {{3}, DType::kI64}, {{2, 2}, DType::kI64}, {{2}, DType::kI64}},
      "differ in number");
}

// Logits whose largest elements are those of the path.
Tensor logits_of(const std::vector<std::vector<int>>& paths, std::int64_t classes) {
  Tensor x({std::ssize(paths), std::ssize(paths[0]), classes}, DType::kF32);
  std::size_t step = 0;
  for (const std::vector<int>& path : paths)
    for (const int symbol : path)
      x.mutable_data<float>()[step++ * static_cast<std::size_t>(classes) +
                              static_cast<std::size_t>(symbol)] = 1;
  return x;
}

TEST(CtcBestPath, LeavesOutRepetitionsBlanksAndWhatIsPastTheTime) {
  const Tensor logits = logits_of({{1, 1, 0, 1, 2}, {0, 0, 0, 0, 0}, {2, 3, 3, 1, 1}}, 4);
  const Tensor time({3}, std::vector<std::int32_t>{5, 5, 3});
  const auto labels = [&](std::int64_t blank) {
    return doubles(
        compute([blank](Inputs x) { return ctc_best_path(x[0], x[1], {.blank = blank}).labels; },
                {logits, time}));
  };
  EXPECT_EQ(labels(0), (std::vector<double>{1, 1, 2, -1, -1,     //
                                            -1, -1, -1, -1, -1,  //
                                            2, 3, -1, -1, -1}));
  EXPECT_EQ(labels(3), (std::vector<double>{1, 0, 1, 2, -1,     //
                                            0, -1, -1, -1, -1,  //
                                            2, -1, -1, -1, -1}));
  const auto lengths = [](Inputs x) { return ctc_best_path(x[0], x[1]).lengths; };
  EXPECT_EQ(doubles(compute(lengths, {logits, time})), (std::vector<double>{3, 0, 2}));
}

TEST(CtcBestPath, NeedsAKnownTime) {
  const auto read = [](Inputs x) { return ctc_best_path(x[0], x[1]).labels; };
  expect_refused(read, {{{2, kUnknownSize, 3}}, {{2}, DType::kI32}}, "of a known time");
}

}  // namespace edit_distance_test
}  // namespace belfry
