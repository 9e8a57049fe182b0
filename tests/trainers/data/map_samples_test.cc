#include "belfry/trainers/data/map_samples.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/training_samples.h"
#include "belfry/trainers/data/gatherer.h"

namespace belfry {
namespace map_samples_test {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

// Three samples of two numbers, with a label each.
std::unique_ptr<Dataset> numbers() {
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{
          {"x", Tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), DType::kF32, {2}},
          {"label", Tensor({3}, std::vector<std::int32_t>{7, 8, 9}), DType::kI32, {}}},
      "three samples", 4);
}

std::vector<Tensor> gathered_in(const Dataset& data, const DataPass& pass,
                                const std::vector<std::int64_t>& indices) {
  std::vector<Tensor> tensors = batch_tensors(data, std::ssize(indices));
  std::vector<std::byte*> out;
  for (Tensor& tensor : tensors) out.push_back(tensor.mutable_raw());
  data.gather_training(pass, indices, out);
  return tensors;
}

TEST(MapSamples, ChangesSamplesInPlace) {
  const auto data = map_samples(numbers(), [](MappedSample& sample) {
    EXPECT_FALSE(sample.training);
    sample.to.get<float>(0)[1] = static_cast<float>(100 * sample.index);
  });
  EXPECT_EQ(data->signature(), numbers()->signature());
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->left_out(), 4);
  EXPECT_EQ(data->describe(), "three samples, mapped");
  const std::vector<Tensor> found = gather_tensors(*data, std::vector<std::int64_t>{2, 0});
  EXPECT_THAT(found[0].data<float>(), ElementsAre(5, 200, 1, 0));
  EXPECT_THAT(found[1].data<std::int32_t>(), ElementsAre(9, 7));
}

TEST(MapSamples, MakesOtherFields) {
  const auto data = map_samples(
      numbers(), {{"sum", DType::kF64, {}}, {"more", DType::kI64, {3}}}, [](MappedSample& sample) {
        const auto x = sample.from.get<float>(0);
        sample.to.get<double>(0)[0] = x[0] + x[1];
        sample.to.get<std::int64_t>(1)[1] = sample.from.get<std::int32_t>(1)[0];
      });
  const std::vector<Tensor> found = gather_tensors(*data, std::vector<std::int64_t>{1, 2});
  EXPECT_THAT(found[0].data<double>(), ElementsAre(7, 11));
  EXPECT_THAT(found[1].data<std::int64_t>(), ElementsAre(0, 8, 0, 0, 9, 0));
}

// They depend on the sample, in training also on the seed and the epoch, and on nothing else.
TEST(MapSamples, DrawsNumbersOfTheSampleAndTheEpoch) {
  const auto data = map_samples(numbers(), [](MappedSample& sample) {
    for (float& x : sample.to.get<float>(0)) x = sample.random.uniform(0, 1);
  });
  const auto drawn = [&](const DataPass& pass, const std::vector<std::int64_t>& indices) {
    const Tensor x = gathered_in(*data, pass, indices)[0];
    return std::vector<float>(x.data<float>().begin(), x.data<float>().end());
  };
  const std::vector<float> first = drawn({.seed = 1, .epoch = 0}, {0, 1});
  EXPECT_EQ(drawn({.seed = 1, .epoch = 0}, {1, 0}),
            (std::vector<float>{first[2], first[3], first[0], first[1]}));
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], first[2]);
  EXPECT_NE(drawn({.seed = 1, .epoch = 1}, {0, 1}), first);
  EXPECT_NE(drawn({.seed = 2, .epoch = 0}, {0, 1}), first);
  const auto tested = [&] { return gather_tensors(*data, std::vector<std::int64_t>{1})[0]; };
  EXPECT_EQ(tested(), tested());
}

// Each map has random numbers of its own, also over data that draw some themselves.
TEST(MapSamples, OverOthersHaveOtherNumbers) {
  std::vector<std::uint64_t> drawn;
  const auto draw = [&](MappedSample& sample) { drawn.push_back(sample.random.bits()); };
  const auto data = map_samples(map_samples(numbers(), draw), draw);
  gather_tensors(*data, std::vector<std::int64_t>{0});
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(MapSamples, NamesFieldsThatAreAskedForAsAnotherType) {
  const auto asking = [](auto ask) {
    const auto data = map_samples(numbers(), ask);
    return message_of<InvalidArgument>(
        [&] { gather_tensors(*data, std::vector<std::int64_t>{0}); });
  };
  EXPECT_THAT(asking([](MappedSample& sample) { sample.to.get<std::int64_t>(1); }),
              HasSubstr("field 'label' of a sample is i32, and was asked for as i64"));
  EXPECT_THAT(asking([](MappedSample& sample) { sample.to.get<float>(2); }),
              HasSubstr("a sample has 2 fields, and none of number 2"));
}

TEST(MapSamples, RefusesWhatItCannotMap) {
  EXPECT_THAT(message_of<InvalidArgument>([] { map_samples(nullptr, [](MappedSample&) {}); }),
              HasSubstr("was given no data"));
  EXPECT_THAT(message_of<InvalidArgument>([] { map_samples(numbers(), nullptr); }),
              HasSubstr("an empty function"));
  EXPECT_THAT(message_of<InvalidArgument>([] { map_samples(numbers(), {}, [](MappedSample&) {}); }),
              HasSubstr("no fields"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                map_samples(numbers(), {{"x", DType::kF32, {kUnknownSize}}}, [](MappedSample&) {});
              }),
              HasSubstr("must be known"));
}

// Samples 0 to 4; those of `wrong` are bad.
class SomeBad final : public Dataset {
 public:
  explicit SomeBad(std::set<std::int64_t> wrong) : wrong_(std::move(wrong)) {}
  std::vector<Field> signature() const override { return {{"x", DType::kI32, {}}}; }
  std::int64_t size() const override { return 5; }
  std::string describe() const override { return "five numbers"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    auto* to = reinterpret_cast<std::int32_t*>(out[0]);
    for (const std::int64_t index : indices) {
      if (wrong_.contains(index))
        throw BadRecord("numbers.txt", static_cast<std::uint64_t>(index), "is no number");
      *to++ = static_cast<std::int32_t>(index);
    }
  }

 private:
  std::set<std::int64_t> wrong_;
};

TEST(WithoutBadRecords, TheNextSampleTakesThePlaceOfABadOne) {
  const auto make = [](std::set<std::int64_t> wrong, std::int64_t most) {
    return without_bad_records(std::make_unique<SomeBad>(std::move(wrong)),
                               std::make_shared<BadRecords>(BadRecordPolicy{.most = most}));
  };
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4};
  const auto data = make({1, 2, 4}, 3);
  EXPECT_EQ(gather_tensors(*data, all)[0], (Tensor({5}, std::vector<std::int32_t>{0, 3, 3, 3, 0})));
  EXPECT_EQ(test::training_samples(*data, {}, all)[0],
            (Tensor({5}, std::vector<std::int32_t>{0, 3, 3, 3, 0})));
  EXPECT_EQ(data->left_out(), 3);
  EXPECT_EQ(data->size(), 5);
  EXPECT_THAT(message_of<IoError>([&] {
                gather_tensors(*make({1, 2}, 1), all);
              }),
              HasSubstr("numbers.txt: bad record at byte 2: is no number; 1 was left out before"));
  EXPECT_THAT(message_of<IoError>([&] {
                gather_tensors(*make({0, 1, 2, 3, 4}, 9), all);
              }),
              HasSubstr("five numbers: all records are bad"));
}

}  // namespace map_samples_test
}  // namespace belfry
