#include "belfry/trainers/data/derived_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace derived_dataset_test {

using testing::ElementsAre;

// Samples 0, 1, 2, ..., or ten more in training.
class Numbers final : public Dataset {
 public:
  std::vector<Field> signature() const override { return {{"number", DType::kF32, {}}}; }
  std::int64_t size() const override { return 5; }
  std::string describe() const override { return "numbers"; }
  std::vector<std::string> files() const override { return {"numbers.txt"}; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    copy(indices, 0, out);
  }
  void gather_training(const DataPass&, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    copy(indices, 10, out);
  }

 private:
  static void copy(std::span<const std::int64_t> indices, float more,
                   std::span<std::byte* const> out) {
    for (std::size_t i = 0; i < indices.size(); ++i)
      reinterpret_cast<float*>(out[0])[i] = static_cast<float>(indices[i]) + more;
  }
};

// Each number, and beside it two random ones.
class WithDice final : public DerivedDataset {
 public:
  WithDice() : DerivedDataset(std::make_unique<Numbers>()) {}
  std::vector<Field> signature() const override {
    return {{"number", DType::kF32, {}}, {"dice", DType::kI64, {2}}};
  }

 private:
  void make(Sample& sample) const override {
    copy_source(sample);
    for (int i = 0; i < 2; ++i)
      sample.field<std::int64_t>(1)[i] = static_cast<std::int64_t>(sample.random.below(1000));
  }
};

struct Batch {
  std::vector<float> numbers;
  std::vector<std::int64_t> dice;
  bool operator==(const Batch&) const = default;
};

Batch batch(std::optional<DataPass> pass, const std::vector<std::int64_t>& indices) {
  const WithDice data;
  Batch result{std::vector<float>(indices.size()), std::vector<std::int64_t>(2 * indices.size())};
  std::byte* const out[] = {reinterpret_cast<std::byte*>(result.numbers.data()),
                            reinterpret_cast<std::byte*>(result.dice.data())};
  if (pass) {
    data.gather_training(*pass, indices, out);
  } else {
    data.gather(indices, out);
  }
  return result;
}

TEST(DerivedDataset, WritesSamplesOfAllFieldsOneAfterTheOther) {
  const Batch all = batch({}, {3, 0, 4});
  EXPECT_THAT(all.numbers, ElementsAre(3, 0, 4));
  const std::vector<std::int64_t> alone = batch({}, {0}).dice;
  EXPECT_THAT(all.dice,
              ElementsAre(testing::_, testing::_, alone[0], alone[1], testing::_, testing::_));
  EXPECT_NE(alone, batch({}, {3}).dice);
}

TEST(DerivedDataset, DrawsAnewInEachPassAndTheSameWithoutOne) {
  const DataPass first{.seed = 1, .epoch = 0}, second{.seed = 1, .epoch = 1},
      other{.seed = 2, .epoch = 0};
  EXPECT_THAT(batch(first, {2}).numbers, ElementsAre(12));
  EXPECT_EQ(batch(first, {2}), batch(first, {2}));
  EXPECT_NE(batch(first, {2}).dice, batch(second, {2}).dice);
  EXPECT_NE(batch(first, {2}).dice, batch(other, {2}).dice);
  EXPECT_NE(batch(first, {2}).dice, batch({}, {2}).dice);
  EXPECT_EQ(batch({}, {2}), batch({}, {2}));
}

TEST(DerivedDataset, IsAsItsSource) {
  const WithDice data;
  EXPECT_EQ(data.size(), 5);
  EXPECT_EQ(data.describe(), "samples made of numbers");
  EXPECT_THAT(data.files(), ElementsAre("numbers.txt"));
}

}  // namespace derived_dataset_test
}  // namespace belfry
