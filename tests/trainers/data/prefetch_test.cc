#include "belfry/trainers/data/prefetch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/threads.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/device/gpu_memory.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace prefetch_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i is ([i, -i], i). It can fail at a call, or wait at one.
class Counting final : public Dataset {
 public:
  explicit Counting(std::int64_t size) : size_(size) {}

  std::vector<Field> signature() const override {
    return {{"pair", DType::kF32, {2}}, {"index", DType::kI64, {}}};
  }
  std::int64_t size() const override { return size_; }
  std::string describe() const override { return "counting"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    if (calls_++ == fail_at) throw IoError("the disk is on fire");
    if (before_write)
      for (std::byte* const field : out) before_write(field, indices.size() * sizeof(double));
    auto* pair = reinterpret_cast<float*>(out[0]);
    auto* index = reinterpret_cast<std::int64_t*>(out[1]);
    for (const std::int64_t i : indices) {
      *pair++ = static_cast<float>(i);
      *pair++ = static_cast<float>(-i);
      *index++ = i;
    }
  }

  std::int64_t fail_at = -1;
  std::function<void(const void* memory, std::size_t bytes)> before_write;
  std::int64_t calls() const { return calls_; }

 private:
  std::int64_t size_;
  mutable std::atomic<std::int64_t> calls_{0};
};

TEST(Prefetcher, SaysWhatItsThreadWasForIfItCannotBeStarted) {
  const Counting dataset(50);
  const BatchPlan plan(50, 3, 4, 7);
  set_thread_hook([](const ThreadUse&) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  const std::pair<std::string, std::optional<TowerSpan>> cases[] = {
      {"all towers", {}},
      {"all towers", TowerSpan(0, 3)},
      {"towers 1 to 2", TowerSpan(1, 2)},
      {"tower 2", TowerSpan(2)}};
  for (const auto& [name, towers] : cases) {
    try {
      const Prefetcher input(dataset, plan, {}, 2, towers);
      ADD_FAILURE() << "started";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("for the input of " + name + ": Resource temporarily"));
      EXPECT_THAT(error.what(), HasSubstr("ulimit -u"));
    }
  }
  set_thread_hook({});
}

TEST(Prefetcher, GivesTheBatchesOfThePlanInOrderAcrossEpochs) {
  const Counting dataset(50);
  const BatchPlan plan(50, 3, 4, 7);  // 4 steps an epoch
  std::vector<std::int64_t> order(50);
  for (const std::int64_t slots : {2, 3, 7}) {
    Prefetcher input(dataset, plan, {}, slots);
    for (std::int64_t step = 0; step < 30; ++step) {
      const Batch& batch = input.next();
      EXPECT_EQ(batch.position, (BatchPlan::Position{step / 4, step % 4}));
      plan.shuffle(step / 4, order);
      for (std::int64_t t = 0; t < 3; ++t) {
        const auto direct = gather_tensors(dataset, plan.rows(order, step % 4, t));
        ASSERT_EQ(batch.tower(t).size(), 2u);
        EXPECT_EQ(batch.tower(t)[0], direct[0]);
        EXPECT_EQ(batch.tower(t)[1], direct[1]);
      }
    }
  }
}

TEST(Prefetcher, GivesShortBatchesAndAllocatesNothingForThem) {
  const Counting dataset(50);
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
    const BatchPlan plan(50, 3, 5, 7, {.uneven = uneven});  // 3 steps of 15, one of 5
    std::vector<std::int64_t> order(static_cast<std::size_t>(plan.order_size()));
    Prefetcher input(dataset, plan, {0, 1}, 2);
    const std::int64_t before = host_allocator().calls();
    for (std::int64_t step = 1; step < 30; ++step) {
      const Batch& batch = input.next();
      EXPECT_EQ(batch.position, (BatchPlan::Position{step / 4, step % 4}));
      EXPECT_EQ(batch.form, step % 4 == 3 ? 1u : 0u);
      plan.shuffle(step / 4, order);
      for (std::int64_t t = 0; t < 3; ++t)
        EXPECT_TRUE(std::ranges::equal(batch.tower(t)[1].data<std::int64_t>(),
                                       plan.rows(order, step % 4, t)));
    }
    EXPECT_EQ(host_allocator().calls(), before);
  }
}

TEST(Prefetcher, LaysTensorsOutTowerByTower) {
  const Counting dataset(8);
  Prefetcher input(dataset, BatchPlan(8, 2, 3, 1));
  const Batch& batch = input.next();
  ASSERT_EQ(batch.tensors.size(), 4u);
  EXPECT_EQ(batch.fields, 2);
  EXPECT_EQ(batch.tensors[0].shape(), (Shape{3, 2}));
  EXPECT_EQ(batch.tensors[1].shape(), (Shape{3}));
  EXPECT_EQ(batch.tensors[2].dtype(), DType::kF32);
  EXPECT_EQ(batch.tensors[3].dtype(), DType::kI64);
  for (const Tensor& tensor : batch.tensors)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0u);
}

TEST(Prefetcher, GoesOnFromAPosition) {
  const Counting dataset(50);
  const BatchPlan plan(50, 3, 4, 7);
  Prefetcher whole(dataset, plan), rest(dataset, plan, {1, 2});
  for (int step = 0; step < 6; ++step) whole.next();
  for (int step = 6; step < 12; ++step) {
    const Batch &a = whole.next(), &b = rest.next();
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.tensors, b.tensors);
  }
}

TEST(Prefetcher, GivesTheSharesOfOneTowerAlone) {
  const Counting dataset(50);
  for (const Uneven uneven : {Uneven::kDrop, Uneven::kWeight}) {
    const BatchPlan plan(50, 3, 4, 7, {.uneven = uneven, .tower_weights = {1, 2, 1}});
    Prefetcher whole(dataset, plan, {0, 2}), second(dataset, plan, {0, 2}, 3, 1);
    for (int step = 0; step < 12; ++step) {
      const Batch &all = whole.next(), &one = second.next();
      EXPECT_EQ(one.position, all.position);
      EXPECT_EQ(one.form, all.form);
      EXPECT_TRUE(std::ranges::equal(one.tower(0), all.tower(1)));
      EXPECT_EQ(one.tensors.size(), 2u);
    }
    EXPECT_THROW(Prefetcher(dataset, plan, {}, 3, 3), InvalidArgument);
  }
}

TEST(Prefetcher, ReusesItsMemory) {
  const Counting dataset(64);
  Prefetcher input(dataset, BatchPlan(64, 2, 4, 1), {}, 2);
  const std::int64_t before = host_allocator().calls();
  std::set<const std::byte*> places;
  for (int step = 0; step < 100; ++step) places.insert(input.next().tensors[0].raw());
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(host_allocator().calls(), before);
}

TEST(Prefetcher, LeavesACopyOfATensorAsItWas) {
  const Counting dataset(64);
  const BatchPlan plan(64, 1, 4, 1);
  Prefetcher input(dataset, plan, {}, 2);
  const Tensor kept = input.next().tensors[1];
  for (int step = 0; step < 50; ++step) input.next();
  std::vector<std::int64_t> order(64);
  plan.shuffle(0, order);
  EXPECT_TRUE(std::ranges::equal(kept.data<std::int64_t>(), plan.rows(order, 0, 0)));
}

TEST(Prefetcher, RethrowsAfterTheBatchesBeforeTheFailureAndAgainLater) {
  Counting dataset(50);
  dataset.fail_at = 2 * 3 + 1;  // tower 1 of step 2
  Prefetcher input(dataset, BatchPlan(50, 3, 4, 7), {}, 7);
  EXPECT_EQ(input.next().position.batch, 0);
  EXPECT_EQ(input.next().position.batch, 1);
  for (int again = 0; again < 3; ++again)
    EXPECT_EQ(test::message_of<IoError>([&] { input.next(); }), "the disk is on fire");
}

TEST(Prefetcher, StopsWheneverItIsDestroyed) {
  const Counting dataset(50);
  const BatchPlan plan(50, 3, 4, 7);
  for (int steps = 0; steps < 20; ++steps) {
    Prefetcher input(dataset, plan, {}, 2 + steps % 3);
    for (int step = 0; step < steps; ++step) input.next();
  }
  Counting broken(50);
  broken.fail_at = 0;
  const Prefetcher unused(broken, plan);
}

TEST(Prefetcher, FillsNoMoreSlotsThanItHas) {
  const Counting dataset(50);
  Prefetcher input(dataset, BatchPlan(50, 1, 5, 7), {}, 3);
  for (std::int64_t step = 1; step <= 20; ++step) {
    input.next();
    EXPECT_LE(dataset.calls(), step + 2);
  }
}

// The batches of a Prefetcher with threads, gathered when they are asked for.
TEST(Prefetcher, StartsNoThreadWithoutDataWorkers) {
  const Counting dataset(50);
  for (const Uneven uneven : {Uneven::kDrop, Uneven::kWeight, Uneven::kPad}) {
    const BatchPlan plan(50, 2, 5, 7, {.uneven = uneven});
    Prefetcher with(dataset, plan, {0, 3});
    int started = 0;
    set_thread_hook([&](const ThreadUse&) { ++started; });
    Prefetcher without(dataset, plan, {0, 3}, 3, {}, {}, 0);
    const std::int64_t before = host_allocator().calls();
    std::set<const std::byte*> places;
    for (int step = 0; step < 30; ++step) {
      const Batch &a = with.next(), &b = without.next();
      EXPECT_EQ(a.position, b.position);
      EXPECT_EQ(a.form, b.form);
      EXPECT_EQ(a.tensors, b.tensors);
      if (b.form == 0) places.insert(b.tensors[0].raw());
    }
    set_thread_hook({});
    EXPECT_EQ(started, 0);
    EXPECT_EQ(places.size(), 2u);
    EXPECT_EQ(host_allocator().calls(), before);
  }
}

TEST(Prefetcher, GathersOnlyWhatIsAskedForWithoutDataWorkers) {
  Counting dataset(50);
  dataset.fail_at = 3;
  Prefetcher input(dataset, BatchPlan(50, 1, 5, 7), {}, 3, {}, {}, 0);
  EXPECT_EQ(dataset.calls(), 0);
  for (int step = 1; step <= 2; ++step) {
    const Batch& batch = input.next();
    EXPECT_EQ(dataset.calls(), step);
    const Tensor before = batch.tensors[0];
    for (int again = 0; again < 2; ++again) EXPECT_FALSE(input.is_at_end());
    EXPECT_EQ(dataset.calls(), step + 1);
    EXPECT_EQ(batch.tensors[0], before) << "it is valid until next()";
  }
  input.next();
  EXPECT_FALSE(input.is_at_end()) << "a failure is not an end";
  for (int again = 0; again < 3; ++again)
    EXPECT_EQ(test::message_of<IoError>([&] { input.next(); }), "the disk is on fire");
  EXPECT_EQ(dataset.calls(), 4);
}

// A step that takes the batches of Counting's towers, on a stand-in GPU.
class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    DeviceScope on(graph_, DeviceSpec::local("GPU", 0));
    pair_ = placeholder(graph_, "pair", DType::kF32, {4, 2});
    index_ = placeholder(graph_, "index", DType::kI64, {4});
    session_ = std::make_unique<Session>(
        graph_, SessionOptions{.device_count = {{"GPU", 1}}, .threads = 1});
    step_ = &session_->prepare({pair_, index_}, {{pair_, {4, 2}}, {index_, {4}}});
  }
  Prefetcher::Stage stage() {
    return [this](const Batch& batch, std::stop_token stop) {
      ++staged_;
      return step_->stage(batch.tensors, std::move(stop));
    };
  }

  const Counting dataset_{50};
  const BatchPlan plan_{50, 1, 4, 7};
  test::StandInGpus gpus_{1};
  const test::UseGpus use_{gpus_};
  Graph graph_;
  Output pair_, index_;
  std::unique_ptr<Session> session_;
  CompiledStep* step_;
  std::atomic<int> staged_{0};
};

TEST_F(StagingTest, SendsEachBatchToItsStep) {
  for (const int workers : {0, 1}) {
    Prefetcher plain(dataset_, plan_),
        input(dataset_, plan_, {}, 3, std::nullopt, stage(), workers);
    for (int step = 0; step < 40; ++step) {
      Batch& batch = input.next();
      if (step % 3 == 0) {
        EXPECT_FALSE(input.is_at_end());
      }
      step_->run(std::move(batch.staged), std::vector<Tensor>(2));
      const Batch& expected = plain.next();
      EXPECT_EQ(step_->fetched(0), expected.tensors[0]);
      EXPECT_EQ(step_->fetched(1), expected.tensors[1]);
      EXPECT_EQ(batch.tensors, expected.tensors);
    }
  }
}

// With pinned memory, batches stay where they were gathered until the GPU has copied them. The
// stand-in refuses writes of memory that is being copied.
TEST_F(StagingTest, GathersIntoMemoryThatNoGpuCopies) {
  gpus_.slow_copies(std::chrono::milliseconds(10));
  Counting dataset(50);
  dataset.before_write = [&](const void* memory, std::size_t bytes) {
    gpus_.host_uses("gather()", {test::accessed(memory, bytes, true)});
  };
  for (const int workers : {0, 1}) {
    Prefetcher plain(dataset_, plan_),
        input(dataset, plan_, {}, 3, std::nullopt, stage(), workers, feed_memory(gpus_));
    int allocations = 0;
    for (int step = 0; step < 24; ++step) {
      Batch& batch = input.next();
      const Batch& expected = plain.next();
      EXPECT_EQ(batch.tensors, expected.tensors);
      EXPECT_TRUE(is_feed_memory(gpus_, batch.tensors[0].raw()));
      if (step == 4) allocations = gpus_.calls().allocations;
      if (step == 16) {
        EXPECT_EQ(gpus_.calls().allocations, allocations);
      }
      if (step > 16 && step % 3 == 0) continue;  // no step takes it, so others get new memory
      step_->run(std::move(batch.staged), std::vector<Tensor>(2));
      EXPECT_EQ(step_->fetched(0), expected.tensors[0]);
      EXPECT_EQ(step_->fetched(1), expected.tensors[1]);
    }
  }
}

TEST_F(StagingTest, LetsGoOfBatchesThatNoStepTook) {
  Prefetcher input(dataset_, plan_, {}, 3, std::nullopt, stage());
  for (int step = 0; step < 10; ++step) input.next();
  EXPECT_GE(staged_, 10);
}

TEST_F(StagingTest, EndsWhileItWaitsForASlot) {
  for (int steps = 0; steps < 3; ++steps) {
    staged_ = 0;
    Prefetcher input(dataset_, plan_, {}, 5, std::nullopt, stage());
    for (int step = 0; step < steps; ++step) input.next();
    while (staged_ < 3) std::this_thread::yield();
  }
}

TEST_F(StagingTest, RethrowsWhatStagingThrew) {
  Prefetcher input(dataset_, plan_, {}, 3, std::nullopt,
                   [&](const Batch&, std::stop_token) -> StagedFeeds {
                     if (staged_++ == 1) throw IoError("no way there");
                     return {};
                   });
  input.next();
  EXPECT_EQ(test::message_of<IoError>([&] { input.next(); }), "no way there");
}

TEST_F(StagingTest, StagesWhatWasGatheredBeforeAFailure) {
  Counting broken(50);
  broken.fail_at = 2;
  Prefetcher input(broken, plan_, {}, 3, std::nullopt, stage());
  while (broken.calls() < 3) std::this_thread::yield();
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(input.next().staged);
  EXPECT_EQ(test::message_of<IoError>([&] { input.next(); }), "the disk is on fire");
}

TEST(Prefetcher, RefusesOneSlotAndAForeignPlan) {
  const Counting dataset(50);
  const auto error = [&](std::int64_t samples, std::int64_t step, std::int64_t slots) {
    return test::message_of<InvalidArgument>([&] {
      Prefetcher(dataset, BatchPlan(samples, 1, 5, 7), {0, step}, slots);
    });
  };
  EXPECT_THAT(error(50, 0, 1), HasSubstr("at least 2 slots, not 1"));
  EXPECT_THAT(error(49, 0, 2), HasSubstr("a plan for 49 samples was given a dataset of 50"));
  EXPECT_THAT(error(50, 10, 2), HasSubstr("batch 10 of an epoch of 10"));
}

}  // namespace prefetch_test
}  // namespace belfry
