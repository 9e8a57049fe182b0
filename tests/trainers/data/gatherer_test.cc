#include "belfry/trainers/data/gatherer.h"

#include <atomic>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace gatherer_test {

using test::message_of;
using ::testing::HasSubstr;

// Sample i is (i, 1000 seed + 100 epoch + i) in training, else (i, 0). Refuses samples of 90 and
// above.
class Passes final : public Dataset {
 public:
  std::vector<Field> signature() const override {
    return {{"index", DType::kI64, {}}, {"drawn", DType::kI32, {2}}};
  }
  std::int64_t size() const override { return 100; }
  std::string describe() const override { return "passes"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    fill(indices, out, [](std::int64_t) { return 0; });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    fill(indices, out, [&](std::int64_t i) {
      return static_cast<int>(1000 * static_cast<std::int64_t>(pass.seed) + 100 * pass.epoch + i);
    });
  }
  mutable std::atomic<int> calls = 0;

 private:
  template <class F>
  void fill(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& drawn) const {
    ++calls;
    auto* index = reinterpret_cast<std::int64_t*>(out[0]);
    auto* pair = reinterpret_cast<std::int32_t*>(out[1]);
    for (const std::int64_t i : indices) {
      if (i >= 90) throw IoError(cat("sample ", i, " is bad"));
      *index++ = i;
      *pair++ = drawn(i);
      *pair++ = -drawn(i);
    }
  }
};

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<Tensor> gathered(Gatherer& gatherer, const Dataset& data,
                             const std::optional<DataPass>& pass,
                             const std::vector<std::int64_t>& rows) {
  std::vector<Tensor> tensors = batch_tensors(data, std::ssize(rows));
  std::vector<std::byte*> out;
  for (Tensor& tensor : tensors) out.push_back(tensor.mutable_raw());
  gatherer.gather(pass, rows, out);
  return tensors;
}

TEST(Gatherer, GivesTheSameForAnyNumberOfWorkers) {
  const Passes data;
  for (const int workers : {0, 1, 2, 3, 8}) {
    Gatherer gatherer(data, workers, "a test");
    for (const std::int64_t count : {0, 1, 2, 7, 64, 90})
      for (int again = 0; again < 3; ++again) {
        const std::vector<std::int64_t> rows = first(count);
        EXPECT_EQ(gathered(gatherer, data, {}, rows), gather_tensors(data, rows));
        const Tensor drawn = gathered(gatherer, data, DataPass{2, 3}, rows)[1];
        for (std::size_t i = 0; i < rows.size(); ++i)
          ASSERT_EQ(drawn.data<std::int32_t>()[2 * i], 2300 + static_cast<int>(i));
      }
  }
}

TEST(Gatherer, DividesABatchAmongItsWorkers) {
  const Passes data;
  Gatherer gatherer(data, 4, "a test");
  gathered(gatherer, data, {}, first(64));
  EXPECT_EQ(data.calls, 16);
}

TEST(Gatherer, ThrowsWhatTheFirstPartThatFailedThrewAndGoesOn) {
  const Passes data;
  for (const int workers : {1, 4}) {
    Gatherer gatherer(data, workers, "a test");
    for (int again = 0; again < 5; ++again) {
      std::vector<std::int64_t> rows = first(80);
      for (const std::size_t i : {30u, 50u, 70u}) rows[i] = static_cast<std::int64_t>(90 + i / 10);
      EXPECT_EQ(message_of<IoError>([&] { gathered(gatherer, data, {}, rows); }),
                "sample 93 is bad");
      EXPECT_EQ(gathered(gatherer, data, {}, first(80)), gather_tensors(data, first(80)));
    }
  }
}

TEST(Gatherer, RefusesFewerThanNoWorkers) {
  const Passes data;
  EXPECT_THAT(message_of<InvalidArgument>([&] { Gatherer(data, -1, "a test"); }),
              HasSubstr("data workers: -1"));
}

// Workers beyond the samples of a batch would only wake and sleep.
TEST(Prefetcher, StartsNoMoreDataWorkersThanATowerHasSamples) {
  const std::vector<float> numbers(100);
  const TensorDataset data({{"number", Tensor({100}, numbers), DType::kF32, {}}}, "numbers");
  std::atomic<int> helpers = 0;
  set_thread_hook([&](const ThreadUse& use) { helpers += use.what.starts_with("data worker"); });
  testing::internal::CaptureStderr();
  {
    Prefetcher input(data, BatchPlan(100, 2, 5, 7), {}, 2, {}, {}, 1000);
    input.next();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  set_thread_hook({});
  EXPECT_EQ(helpers, 4);  // and the thread that prefetches
  EXPECT_THAT(said,
              HasSubstr("1000 threads were asked for to gather a batch (the option data_workers)"));
  EXPECT_THAT(said, HasSubstr("takes 5 samples at a time; 5 are used"));
}

TEST(Gatherer, NotesThatTheDataSetThrew) {
  const Passes data;
  Gatherer gatherer(data, 2, "a test");
  try {
    gathered(gatherer, data, {}, {95});
    ADD_FAILURE() << "it threw nothing";
  } catch (const IoError& error) {
    ASSERT_TRUE(origin_of(error));
    EXPECT_EQ(origin_of(error)->what, "gather() of 'passes'");
  }
}

TEST(Prefetcher, TellsTheDataSeedAndEpochWhateverTheWorkers) {
  const Passes data;
  const BatchPlan plan(100, 2, 5, 7);
  std::vector<std::int64_t> order(100);
  for (const int workers : {0, 1, 3}) {
    Prefetcher input(data, plan, {1, 8}, 2, {}, {}, workers);
    for (int step = 8; step < 12; ++step) {
      const std::int64_t epoch = 1 + step / 10;
      plan.shuffle(epoch, order);
      bool bad = false;
      for (std::int64_t t = 0; t < 2; ++t)
        for (const std::int64_t row : plan.rows(order, step % 10, t)) bad = bad || row >= 90;
      if (bad) break;
      const Batch& batch = input.next();
      for (std::int64_t t = 0; t < 2; ++t) {
        const auto rows = plan.rows(order, step % 10, t);
        for (std::size_t i = 0; i < rows.size(); ++i)
          EXPECT_EQ(batch.tower(t)[1].data<std::int32_t>()[2 * i], 7000 + 100 * epoch + rows[i]);
      }
    }
  }
}

}  // namespace gatherer_test
}  // namespace belfry
