#include "belfry/trainers/data/length_buckets.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace length_buckets_test {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows of 6 numbers, of which `lengths` count: 10 * sample + place.
std::unique_ptr<Dataset> rows_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> values;
  const auto count = std::ssize(lengths);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (std::int32_t t = 0; t < 6; ++t)
      values.push_back(t < lengths[i] ? static_cast<std::int32_t>(10 * i) + t : -1);
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"row", Tensor({count, 6}, values), DType::kI32, {6}},
                                         {"length", Tensor({count}, lengths), DType::kI32, {}}},
      "rows");
}

std::vector<std::uint8_t> buckets_of(const std::vector<std::int32_t>& lengths) {
  const auto data = bucket_by_length(rows_of(lengths), "length", {2, 4, 6});
  return data->buckets()->of_samples;
}

TEST(LengthBuckets, TakeTheLeastLengthThatASampleDoesNotExceed) {
  EXPECT_THAT(buckets_of({0, 2, 3, 4, 5, 6}), ElementsAre(0, 0, 1, 1, 2, 2));
}

// Buckets come from the lengths that gather() gives.
TEST(LengthBuckets, RefuseSamplesThatAreLongerInTraining) {
  class Longer final : public Dataset {
   public:
    std::vector<Field> signature() const override { return data_->signature(); }
    std::int64_t size() const override { return data_->size(); }
    void gather(std::span<const std::int64_t> indices,
                std::span<std::byte* const> out) const override {
      data_->gather(indices, out);
    }
    void gather_training(const DataPass&, std::span<const std::int64_t> indices,
                         std::span<std::byte* const> out) const override {
      data_->gather(indices, out);
      ++*reinterpret_cast<std::int32_t*>(out[1]);
    }
    std::string describe() const override { return "longer rows"; }

   private:
    std::unique_ptr<Dataset> data_ = rows_of({2, 4});
  };
  const auto data = bucket_by_length(std::make_unique<Longer>(), "length", {2, 4, 6});
  const BatchPlan plan(2, 1, 1, 7, {}, data->buckets()->of_samples);
  Prefetcher input(*data, plan, {}, 2, {}, {}, 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { input.next(); }),
              HasSubstr("in its field 'length' in training, and goes in batches of"));
}

TEST(LengthBuckets, FillBatchesOfOneLengthAndPassOnWhatIsLeft) {
  // 5 of the first bucket, 3 of the second and 3 of the third, in batches of 2.
  const std::vector<std::int32_t> lengths{1, 6, 2, 3, 2, 5, 1, 4, 2, 3, 6};
  const auto data = bucket_by_length(rows_of(lengths), "length", {2, 4, 6});
  const BatchPlan plan(11, 1, 2, 7, {}, data->buckets()->of_samples);
  ASSERT_EQ(plan.forms().size(), 3u);
  EXPECT_EQ(plan.batches_per_epoch(), 5);  // 2, 2 of 3 + 1 samples, and 1 of 3
  std::vector<std::size_t> orders[2];
  for (const std::int64_t epoch : {0, 1}) {
    Prefetcher input(*data, plan, {.epoch = epoch, .batch = 0}, 2, {}, {}, 2);
    std::set<std::int32_t> seen;
    for (std::int64_t b = 0; b < plan.batches_per_epoch(); ++b) {
      const Batch& batch = input.next();
      const BatchForm& form = plan.forms()[batch.form];
      orders[epoch].push_back(form.bucket);
      const std::int64_t time = 2 + 2 * static_cast<std::int64_t>(form.bucket);
      ASSERT_EQ(batch.tensors[0].shape(), (Shape{2, time}));
      for (std::size_t i = 0; i < 2; ++i) {
        const std::int32_t length = batch.tensors[1].data<std::int32_t>()[i];
        EXPECT_LE(length, time);
        const auto row = batch.tensors[0].data<std::int32_t>().subspan(
            i * static_cast<std::size_t>(time), static_cast<std::size_t>(time));
        EXPECT_TRUE(seen.insert(row[0] / 10).second);
        for (std::size_t t = 0; t < row.size(); ++t)
          EXPECT_EQ(row[t], static_cast<std::int32_t>(t) < length
                                ? row[0] + static_cast<std::int32_t>(t)
                                : -1);
      }
    }
    EXPECT_EQ(seen.size(), 10u);
  }
  EXPECT_EQ(orders[0], orders[1]);
}

TEST(LengthBuckets, KeepTheLastBatchInTheLongest) {
  const auto data = bucket_by_length(rows_of({1, 1, 1, 6, 6}), "length", {2, 6});
  const BatchPlan plan(5, 2, 1, 7, {.uneven = Uneven::kWeight}, data->buckets()->of_samples);
  EXPECT_EQ(plan.batches_per_epoch(), 3);
  EXPECT_EQ(plan.forms()[plan.form_of(2)].bucket, 1u);
  EXPECT_EQ(plan.forms()[plan.form_of(2)].total(), 1);
}

// As a dry run needs them.
TEST(LengthBuckets, AreMadeWithoutReadingTheData) {
  const auto data = bucket_by_length(
      std::make_unique<LazyDataset>(rows_of({1})->signature(),
                                    []() -> std::unique_ptr<Dataset> { throw IoError("read"); }),
      "length", {2, 6});
  EXPECT_EQ(data->signature(), rows_of({1})->signature());
  EXPECT_THROW(data->buckets(), IoError);
}

TEST(LengthBuckets, RefuseWhatDoesNotFit) {
  const auto refusal = [](const std::string& field, std::vector<std::int64_t> lengths) {
    return message_of<InvalidArgument>([&] {
      bucket_by_length(rows_of({1, 5}), field, std::move(lengths));
    });
  };
  EXPECT_THAT(refusal("length", {}), HasSubstr("up to 255 lengths"));
  EXPECT_THAT(refusal("length", {4, 4, 6}), HasSubstr("ascending"));
  EXPECT_THAT(refusal("length", {2, 5}), HasSubstr("5 as its first dimension"));
  EXPECT_THAT(refusal("row", {2, 6}), HasSubstr("no field 'row' i32 []"));
  const auto data = bucket_by_length(rows_of({1, 9}), "length", {2, 6});
  EXPECT_THAT(message_of<InvalidArgument>([&] { data->buckets(); }), HasSubstr("sample 1 has 9"));
}

}  // namespace length_buckets_test
}  // namespace belfry
