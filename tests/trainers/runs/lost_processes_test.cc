// 64 processes, of which one is killed while it saves, evaluates, or lets another one save. All
// others end and name it, and the run resumes from the newest save to the bits of an undisturbed
// one. Long tests do so with 1,024.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace lost_processes_test {

using Clock = std::chrono::steady_clock;
using ::testing::StartsWith;

constexpr int kHosts = 8, kStepsPerEpoch = 5;
constexpr char kRun[] = "/disk/run";

// Calls `f` whenever samples are read.
class ToldData final : public Dataset {
 public:
  ToldData(std::unique_ptr<Dataset> data, std::function<void()> f)
      : data_(std::move(data)), told_(std::move(f)) {}
  std::vector<Field> signature() const override { return data_->signature(); }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    told_();
    data_->gather(indices, out);
  }
  std::string describe() const override { return data_->describe(); }

 private:
  const std::unique_ptr<Dataset> data_;
  const std::function<void()> told_;
};

// Saves after each epoch. Once the first save is known to be on the disk, it calls `armed`.
struct SavedRun final : Callback {
  SavedRun(MemoryFileSystem& disk, std::function<void()> f)
      : directory(kRun, disk), armed(std::move(f)) {}
  void after_step(Trainer&, const StepInfo&) override {
    if (armed && saver->saved_step().value_or(0) >= kStepsPerEpoch) std::exchange(armed, {})();
  }
  RunDirectory directory;
  const std::shared_ptr<RunSaver> saver = std::make_shared<RunSaver>(directory, SaveSchedule{});
  std::function<void()> armed;
};

// How a process ends.
struct End {
  std::string hash, error;
  Clock::time_point at;
};

// What happens on the way.
struct Plan {
  int size = 64;                                // processes
  MemoryFileSystem* disk = nullptr;             // where rank 0 saves; null: it does not
  std::function<void()> armed = nullptr;        // as in SavedRun
  std::function<void(int)> tests = [](int) {};  // gets the rank of whoever reads test data
  std::string from = "";                        // the checkpoint; empty: none
};

// Trains in one of several processes, or alone, with the same bits. Returns the hash of its state.
std::string train_one(const std::shared_ptr<Processes>& processes, const Plan& plan) {
  const int rank = processes ? processes->rank() : 0;
  const auto data = smooth_data(std::int64_t{kStepsPerEpoch} * plan.size);
  const ToldData test_data(smooth_data(2 * plan.size), [&plan, rank] { plan.tests(rank); });
  Console console(nullptr);
  TrainerOptions options{.model = smooth_model,
                         .optimizer = sgd(0.05),
                         .aggregation = {.allreduce = "collective"},
                         .batch_size = processes ? 1 : plan.size,
                         .shards = plan.size,
                         .epochs = 4,
                         .session = {.threads = 1, .processes = processes}};
  if (rank == 0 && plan.disk) {
    const auto run = std::make_shared<SavedRun>(*plan.disk, plan.armed);
    options.callbacks = {run, run->saver};
  }
  options.callbacks.push_back(std::make_shared<Evaluation>(console));
  Trainer trainer(find_trainer("replicated"), std::move(options), *data, &test_data);
  if (!plan.from.empty()) restore_training(trainer, plan.from);
  trainer.train();
  return state_hash(trainer.session(), trainer.graph());
}

// Beats are as far apart as so many threads on few cores need.
WatchOptions watch_of(int size) {
  if (size <= 64) return {.beat = std::chrono::milliseconds(40), .most_silent = 50};
  return {.beat = std::chrono::milliseconds(1'000), .most_silent = 0, .stall_warn = {}};
}

std::vector<End> train(test::MemoryNetwork& network, const Plan& plan) {
  std::vector<End> ends(static_cast<std::size_t>(plan.size));
  test::run_in_memory(
      network, plan.size,
      [&](const std::shared_ptr<Processes>& processes) {
        End& end = ends[static_cast<std::size_t>(processes->rank())];
        try {
          end.hash = train_one(processes, plan);
        } catch (const std::exception& error) {
          end.error = error.what();
        }
        end.at = Clock::now();
      },
      watch_of(plan.size));
  return ends;
}

void copy_newest(MemoryFileSystem& disk, const std::string& folder) {
  const std::vector<std::int64_t> steps = checkpoints_in(disk, kRun);
  ASSERT_FALSE(steps.empty());
  const std::string path = checkpoint_in(kRun, steps.back());
  for (const std::string& name : disk.list(path)) {
    const std::vector<std::byte> bytes = disk.read(path + "/" + name);
    std::ofstream(folder + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
}

// Trains until `kill` has killed `rank`, then from the newest save.
struct Loss {
  int rank, size = 64;
  test::MemoryNetwork network{size, size / kHosts};
  MemoryFileSystem disk{"/disk"};
  Clock::time_point killed_at = {};

  void kill() {
    killed_at = Clock::now();
    network.kill(rank);
  }

  void expect(Plan plan) {
    plan.size = size;
    plan.disk = &disk;
    const std::vector<End> ends = train(network, plan);
    ASSERT_NE(killed_at, Clock::time_point());
    expect_named(ends);
    const test::TemporaryFolder folder;
    copy_newest(disk, folder.path());
    ::testing::internal::CaptureStderr();  // each says from what it resumes
    test::MemoryNetwork again(size, size / kHosts);
    const std::vector<End> resumed = train(again, {.size = size, .from = folder.path()});
    const std::string undisturbed = train_one(nullptr, {.size = size});
    ::testing::internal::GetCapturedStderr();
    for (const End& end : resumed) EXPECT_EQ(end.hash, undisturbed) << end.error;
  }

 private:
  void expect_named(const std::vector<End>& ends) const {
    Clock::time_point last = killed_at;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const End& end = ends[static_cast<std::size_t>(r)];
      last = std::max(last, end.at);
      EXPECT_THAT(end.error, StartsWith(cat("rank ", rank, ", host", rank * kHosts / size,
                                            ": the process has ended")))
          << "of rank " << r;
    }
    const double seconds = std::chrono::duration<double>(last - killed_at).count();
    if (size > 64) std::cout << size << " processes were gone after " << seconds << " s\n";
  }
};

// The process is killed in the middle of a save of rank 0. The call fails if that is rank 0 itself.
void expect_lost_in_a_save(Loss loss) {
  constexpr int kCall = 8;
  loss.expect({.armed = [&] {
    loss.disk.at_call(kCall, [&](MemoryFileSystem&) {
      loss.kill();
      if (loss.rank == 0) throw Crash();
    });
  }});
}

void expect_lost_in_an_evaluation(Loss loss) {
  std::atomic<bool> is_armed = false;
  loss.expect({.armed = [&] { is_armed = true; },
               .tests =
                   [&](int reader) {
                     if (reader == loss.rank && is_armed.exchange(false)) loss.kill();
                   }});
}

// More errors at once than rethrow_from() remembers. ThreadSanitizer does not see the counts of
// references to exceptions, which are in libstdc++, and takes the end of a forgotten one for a
// race.
class LostProcesses : public ::testing::Test {
  void SetUp() override {
    if (kThreadSanitized) GTEST_SKIP() << "64 processes of one program end at once";
  }
};

TEST_F(LostProcesses, TheOneThatSavesIsNamed) { expect_lost_in_a_save({.rank = 0}); }

TEST_F(LostProcesses, OneThatEndsWhileAnotherSavesIsNamed) { expect_lost_in_a_save({.rank = 37}); }

// Rank 32, which passes on what others say.
TEST_F(LostProcesses, OneThatEvaluatesIsNamed) { expect_lost_in_an_evaluation({.rank = 32}); }

TEST_F(LostProcesses, LongOfAThousandTheOneThatSavesIsNamed) {
  expect_lost_in_a_save({.rank = 0, .size = 1'024});
}

TEST_F(LostProcesses, LongOfAThousandOneThatEndsWhileAnotherSavesIsNamed) {
  expect_lost_in_a_save({.rank = 601, .size = 1'024});
}

TEST_F(LostProcesses, LongOfAThousandOneThatEvaluatesIsNamed) {
  expect_lost_in_an_evaluation({.rank = 512, .size = 1'024});
}

}  // namespace lost_processes_test
}  // namespace belfry
