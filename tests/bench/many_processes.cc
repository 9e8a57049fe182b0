// What a step of many processes costs their host: linear regression by P processes, which are
// threads of this program and send each other messages through memory. See docs/benchmarks.md.
//
//   many_processes [P ...]       8, 64, 256 and 1024 by default
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <malloc.h>
#include <unistd.h>

#include "belfry/belfry.h"
#include "belfry/framework/base/require.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/hash.h"

namespace belfry::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kShards = 1024, kSteps = 20, kFirstMeasured = 10;

std::unique_ptr<Dataset> samples() {
  constexpr std::int64_t kSamples = 4096;
  std::vector<float> x, y;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const auto at = static_cast<double>(i);
    const double a = std::fmod(at * 0.7548776662, 1), b = std::fmod(at * 0.5698402910, 1);
    x.insert(x.end(), {static_cast<float>(a), static_cast<float>(b)});
    y.push_back(static_cast<float>(3 * a - 2 * b + 1));
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({kSamples, 2}, x), DType::kF32, {2}},
                                         {"y", Tensor({kSamples, 1}, y), DType::kF32, {1}}},
      "samples of 3 x0 - 2 x1 + 1");
}

Output model(Tower& tower, Output x, Output y) {
  return reduce_mean(square(dense(tower, "fc", x, {.units = 1}) - y));
}

double seconds(Clock::duration length) { return std::chrono::duration<double>(length).count(); }

// Resident memory of this program, in bytes.
double resident() {
  std::ifstream file("/proc/self/statm");
  double all = 0, pages = 0;
  file >> all >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::int64_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// What all processes have sent.
struct Sent {
  double messages = 0, bytes = 0, most = 0, heartbeats = 0, peers = 0;

  Sent(const test::MemoryNetwork& network, int size) {
    for (int r = 0; r < size; ++r) {
      const test::Traffic of = network.traffic(r);
      messages += static_cast<double>(of.messages);
      bytes += static_cast<double>(of.bytes);
      most = std::max(most, static_cast<double>(of.messages));
      heartbeats += static_cast<double>(network.traffic(r, true).messages);
      peers = std::max(peers, static_cast<double>(of.peers));
    }
  }
};

// Of rank 0, which measures for all.
struct Measure final : Callback {
  Measure(const test::MemoryNetwork& of, int number) : network(of), size(number) {}

  void after_step(Trainer&, const StepInfo& info) override {
    const std::int64_t done = info.step + 1;
    if (done == 1) {
      started = Clock::now();
      at_start = std::make_unique<Sent>(network, size);
    }
    if (done != kFirstMeasured && done != kSteps) return;
    times.push_back(Clock::now());
    sent.emplace_back(network, size);
    if (done == kSteps) {
      memory = resident();
      tasks = threads();
    }
  }

  const test::MemoryNetwork& network;
  const int size;
  Clock::time_point began = Clock::now(), started;
  std::vector<Clock::time_point> times;
  std::unique_ptr<Sent> at_start;
  std::vector<Sent> sent;
  double memory = 0;
  std::int64_t tasks = 0;
};

std::string train_alone_or_as(const std::shared_ptr<Processes>& processes,
                              const std::shared_ptr<Measure>& measure, const Dataset& data) {
  const int size = processes ? processes->size() : 1;
  TrainerOptions options{.model = model,
                         .optimizer = sgd(0.5),
                         .aggregation = {.bucket_mb = 4},
                         .batch_size = kShards / size,
                         .shards = kShards,
                         .data_workers = 0,
                         .max_steps = kSteps,
                         .session = {.threads = 1, .processes = processes}};
  options.epochs = kSteps;
  if (measure) options.callbacks.push_back(measure);
  Trainer trainer(find_trainer("replicated"), std::move(options), data);
  trainer.train();
  return params_hash(trainer.session(), trainer.graph());
}

void measure(int size, const std::string& alone, const Dataset& data) {
  ::malloc_trim(0);
  const double memory = resident();
  const std::int64_t tasks = threads();
  test::MemoryNetwork network(size);
  const auto of_rank_0 = std::make_shared<Measure>(network, size);
  std::mutex mutex;
  int different = 0;
  // So many threads on a few cores have to be patient.
  const WatchOptions watch{
      .beat = std::chrono::milliseconds(1'000), .most_silent = 0, .stall_warn = {}};
  test::run_in_memory(
      network, size,
      [&](const std::shared_ptr<Processes>& processes) {
        const std::string hash =
            train_alone_or_as(processes, processes->rank() == 0 ? of_rank_0 : nullptr, data);
        const std::lock_guard lock(mutex);
        different += hash != alone;
      },
      watch);
  const double n = size, steps = kSteps - kFirstMeasured;
  const Sent &first = of_rank_0->sent.at(0), &last = of_rank_0->sent.at(1);
  std::printf("%9d %9.1f %9.1f %9.0f %9.0f %9.0f %7.1f %8.2f %8.1f %9.2f  %s\n", size,
              (last.messages - first.messages) / n / steps, (last.most - first.most) / steps,
              (last.bytes - first.bytes) / n / steps, of_rank_0->at_start->messages / n, last.peers,
              static_cast<double>(of_rank_0->tasks - tasks) / n,
              (of_rank_0->memory - memory) / n / (1 << 20),
              seconds(of_rank_0->started - of_rank_0->began),
              1e3 * seconds(of_rank_0->times.at(1) - of_rank_0->times.at(0)) / steps,
              different == 0 ? "that of P = 1" : "DIFFERS");
  std::fflush(stdout);
  require(different == 0, different, " of ", size, " processes have another hash");
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) try {
  using namespace belfry::bench;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {8, 64, 256, 1024};
  const auto data = samples();
  const std::string alone = train_alone_or_as(nullptr, nullptr, *data);
  std::printf("linear regression, batch and shards %d, params_hash of one process %s\n", kShards,
              alone.c_str());
  std::printf("%9s %9s %9s %9s %9s %9s %7s %8s %8s %9s  %s\n", "processes", "messages", "most",
              "bytes", "at start", "peers", "threads", "MiB", "start s", "ms a step", "hash");
  for (const int size : sizes) measure(size, alone, *data);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
