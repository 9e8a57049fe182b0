#include "belfry/trainers/data/sample_stream.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace sample_stream_test {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Calls {
  int opened = 0;
  std::int64_t read = 0, skipped = 0;
};

// The numbers from 0 on; number 5 is bad.
class Numbers final : public SampleStream {
 public:
  Numbers(std::int64_t count, bool skips, Calls& calls)
      : count_(count), skips_(skips), calls_(calls) {}
  bool next(const SampleFields& to) override {
    if (number_ == count_) return false;
    ++calls_.read;
    if (number_++ == 5) throw BadRecord("numbers", 5, "five");
    to.get<std::int32_t>(0)[0] = static_cast<std::int32_t>(number_ - 1);
    return true;
  }
  std::int64_t skip(std::int64_t records) override {
    if (!skips_) return 0;
    calls_.skipped += records;
    number_ += records + (number_ <= 5 && number_ + records > 5 ? 1 : 0);
    return records;
  }

 private:
  std::int64_t count_, number_ = 0;
  bool skips_;
  Calls& calls_;
};

std::unique_ptr<Dataset> numbers(std::int64_t count, Calls& calls, bool skips = false,
                                 std::int64_t bad = 1) {
  return stream_samples({.fields = {{"number", DType::kI32, {}}},
                         .open =
                             [=, &calls] {
                               ++calls.opened;
                               return std::make_unique<Numbers>(count, skips, calls);
                             },
                         .buffer = 4,
                         .bad_records = {.most = bad},
                         .description = "numbers"});
}

std::vector<std::int32_t> epoch_of(const Dataset& data, std::int64_t epoch) {
  std::vector<std::int64_t> indices(4);
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  std::vector<std::int32_t> found(4);
  std::byte* const out[] = {reinterpret_cast<std::byte*>(found.data())};
  data.gather_training({.epoch = epoch}, indices, out);
  return found;
}

TEST(SampleStream, GivesABufferOfRecordsPerEpoch) {
  Calls calls;
  const auto data = numbers(100, calls);
  EXPECT_EQ(data->size(), 4);
  EXPECT_TRUE(data->is_stream());
  EXPECT_EQ(calls.opened, 0);
  EXPECT_THAT(epoch_of(*data, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(epoch_of(*data, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(epoch_of(*data, 1), ElementsAre(4, 6, 7, 8));
  EXPECT_EQ(data->left_out(), 1);
  EXPECT_EQ(calls.opened, 1);
  EXPECT_EQ(calls.read, 9);
}

TEST(SampleStream, SkipsToALaterEpochAndOpensAnewForAnEarlierOne) {
  for (const bool skips : {false, true}) {
    Calls calls;
    const auto data = numbers(100, calls, skips);
    EXPECT_THAT(epoch_of(*data, 2), ElementsAre(9, 10, 11, 12));
    EXPECT_EQ(calls.skipped, skips ? 8 : 0);
    EXPECT_EQ(calls.read, skips ? 4 : 13);
    EXPECT_THAT(epoch_of(*data, 0), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(calls.opened, 2);
  }
}

TEST(SampleStream, StaysOneWithoutTheBadRecordsOfAMap) {
  Calls calls;
  EXPECT_TRUE(
      without_bad_records(numbers(100, calls), std::make_shared<BadRecords>())->is_stream());
  EXPECT_EQ(calls.opened, 0);
}

// Whether data are a stream must be known before they are loaded.
TEST(SampleStream, IsNotLoadedLazily) {
  Calls calls;
  const LazyDataset lazy({{"number", DType::kI32, {}}}, [&] { return numbers(100, calls); });
  EXPECT_THAT(message_of<InvalidArgument>([&] { lazy.size(); }),
              HasSubstr("gave numbers, 4 records at a time; a stream reads nothing"));
}

TEST(SampleStream, SaysThatItHasEnded) {
  Calls calls;
  const auto data = numbers(7, calls);
  epoch_of(*data, 0);
  EXPECT_EQ(message_of<EndOfStream>([&] { epoch_of(*data, 1); }),
            "numbers has ended after 6 records, 2 too few for a buffer of 4");
}

TEST(SampleStream, RefusesBadRecordsThatNobodyAllows) {
  Calls calls;
  const auto data = numbers(100, calls, false, 0);
  epoch_of(*data, 0);
  EXPECT_THAT(message_of<IoError>([&] { epoch_of(*data, 1); }), HasSubstr("five"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { gather_tensors(*data, std::vector<std::int64_t>{0}); }),
      HasSubstr("training alone"));
}

}  // namespace sample_stream_test
}  // namespace belfry
