#include "belfry/trainers/commands/checkpoint_diff.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/runs/saved_runs.h"

namespace belfry {
namespace checkpoint_diff_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointDiffTest : public SavedRunsTest {
 protected:
  CheckpointDifference compare(const std::vector<SavedVariable>& a,
                               const std::vector<SavedVariable>& b) {
    save(at("a"), a);
    save(at("b"), b);
    return compare_checkpoints(read_checkpoint(at("a")), read_checkpoint(at("b")));
  }
  // The difference of one tensor.
  CheckpointDifference::Values values(const Tensor& a, const Tensor& b) {
    const CheckpointDifference difference = compare({{"w", a}}, {{"w", b}});
    EXPECT_EQ(difference.values.size(), 1u);
    return difference.values.at(0);
  }
};

Tensor floats(std::vector<float> values) {
  return {{static_cast<std::int64_t>(values.size())}, values};
}

TEST_F(CheckpointDiffTest, OfEqualOnesIsNone) {
  const CheckpointDifference difference =
      compare({{"w", floats({1, NAN})}}, {{"w", floats({1, NAN})}});
  EXPECT_TRUE(difference.none());
  EXPECT_EQ(difference.text(), "1 tensor is equal, none differs\n");
  EXPECT_EQ(difference.json().at("equal").str(), "true");
}

TEST_F(CheckpointDiffTest, NamesWhatOnlyOneHasAndOtherTypes) {
  const CheckpointDifference difference =
      compare({{"both", floats({1})}, {"x", floats({1})}, {"z", floats({1, 2})}},
              {{"both", floats({1})}, {"y", floats({1})}, {"z", floats({1})}});
  EXPECT_FALSE(difference.none());
  EXPECT_THAT(difference.only_a, ElementsAre("x"));
  EXPECT_THAT(difference.only_b, ElementsAre("y"));
  EXPECT_EQ(difference.equal, 1u);
  EXPECT_THAT(difference.text(),
              AllOf(HasSubstr(cat("only in ", at("a"), ": x\n")),
                    HasSubstr(cat("z: f32[2] in ", at("a"), ", f32[1] in ", at("b"), "\n")),
                    HasSubstr("1 tensor is equal, 3 differ\n")));
}

TEST_F(CheckpointDiffTest, CountsElementsAndMeasuresThem) {
  const auto found = values(floats({1, 2, -8, 4}), floats({1, 2.5, -8, 3}));
  EXPECT_EQ(found.elements, 4);
  EXPECT_EQ(found.differing, 2);
  EXPECT_EQ(found.first, 1);
  EXPECT_DOUBLE_EQ(found.largest, 1);
  EXPECT_DOUBLE_EQ(found.relative, 0.125);
  EXPECT_EQ(found.str(),
            "w: 2 of 4 elements differ, the first at 1, by at most 1 (0.125 of the largest value)");
}

TEST_F(CheckpointDiffTest, TellsZeroFromMinusZero) {
  const auto found = values(floats({0}), floats({-0.f}));
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.largest, 0);
  EXPECT_EQ(found.relative, 0);
}

TEST_F(CheckpointDiffTest, CountsWhatIsNotFiniteApart) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto found = values(floats({NAN, 1, kInfinity}), floats({1, 2, -kInfinity}));
  EXPECT_EQ(found.differing, 3);
  EXPECT_EQ(found.incomparable, 2);
  EXPECT_DOUBLE_EQ(found.largest, 1);
  EXPECT_THAT(found.str(), HasSubstr("; 2 of them are not finite"));
}

TEST_F(CheckpointDiffTest, ComparesEveryType) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 60;
  EXPECT_DOUBLE_EQ(values(Tensor(kLarge), Tensor(kLarge + 1)).largest, 1);
  EXPECT_DOUBLE_EQ(values(Tensor(-kLarge), Tensor(kLarge)).largest, 0x1p61);
  EXPECT_DOUBLE_EQ(values(Tensor(std::int32_t{-3}), Tensor(std::int32_t{4})).largest, 7);
  EXPECT_DOUBLE_EQ(values(Tensor(std::uint8_t{200}), Tensor(std::uint8_t{1})).largest, 199);
  EXPECT_DOUBLE_EQ(values(Tensor(true), Tensor(false)).largest, 1);
  EXPECT_DOUBLE_EQ(values(Tensor(1.5), Tensor(1.0)).largest, 0.5);
  const auto half = [](std::uint16_t bits, DType dtype) {
    Tensor tensor({1}, dtype);
    std::memcpy(tensor.mutable_raw(), &bits, sizeof bits);
    return tensor;
  };
  EXPECT_DOUBLE_EQ(values(half(0x3C00, DType::kF16), half(0x4000, DType::kF16)).largest, 1);
  EXPECT_DOUBLE_EQ(values(half(0x3F80, DType::kBF16), half(0x4040, DType::kBF16)).largest, 2);
}

}  // namespace checkpoint_diff_test
}  // namespace belfry
