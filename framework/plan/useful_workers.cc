#include "belfry/framework/plan/useful_workers.h"

#include <algorithm>
#include <map>
#include <vector>

namespace belfry {
namespace {

constexpr int kEach = -1;    // worker of a buffer: all of them, in parts
constexpr int kShards = -2;  // worker of a buffer: that of each shard, the same one in all launches

// The buffers that a launch writes.
std::vector<BufferIndex> written(const Plan& plan, const Launch& launch) {
  const PlanNode& node = plan.node(launch.node);
  if (node.writes() == 0) return plan.buffer_of[launch.node];
  std::vector<BufferIndex> buffers;
  for (int i = 0; i < node.writes(); ++i) buffers.push_back(plan.buffer(node.inputs[at(i)]));
  return buffers;
}

// The cost of a launch, in bytes that go through a cache. Such a byte takes about 0.01 ns. A byte
// of a heavy op costs as much as ten, and one of random numbers as much as fifty.
double cost(const Plan& plan, const Launch& launch) {
  constexpr double kLaunch = 4 << 10;
  const PlanNode& node = plan.node(launch.node);
  std::int64_t bytes = 0;
  for (const Value& input : node.inputs) bytes += plan.type(input).bytes();
  for (const TensorType& type : node.types) bytes += type.bytes();
  return kLaunch + static_cast<double>(bytes) * (draws(node) ? 50 : node.op->heavy ? 10 : 1);
}

}  // namespace

Indexed<Launch, double> bytes_from_other_workers(const Plan& plan,
                                                 const Indexed<Strand, int>& worker_of, int workers,
                                                 double most_of_each) {
  const auto worker = [&](const Launch& launch) {
    if (plan.strands[launch.strand].shards > 1) return kShards;
    return launch.parts() > 1 ? kEach : worker_of[launch.strand];
  };
  std::map<BufferIndex, int> writer;
  const auto note = [&](const Launch& launch) {
    for (const BufferIndex buffer : written(plan, launch)) writer[buffer] = worker(launch);
  };
  for (const Launch& launch : plan.launches) note(launch);  // in the previous run
  Indexed<Launch, double> result;
  for (const Launch& launch : plan.launches) {
    std::map<BufferIndex, double> buffers;
    for (const Value& input : plan.node(launch.node).inputs) {
      const auto found = writer.find(plan.buffer(input));
      if (found == writer.end() || found->second == worker(launch)) continue;
      const bool in_parts = found->second < 0 || worker(launch) < 0;
      const double bytes = std::min(most_of_each, static_cast<double>(plan.type(input).bytes()));
      buffers[found->first] = in_parts ? bytes * (workers - 1) / workers : bytes;
    }
    double& sum = result.emplace_back(0);
    for (const auto& [buffer, bytes] : buffers) sum += bytes;
    note(launch);
  }
  return result;
}

int useful_workers(const Plan& plan, int most) {
  // Costs of waking the other workers and of a wait, the size of a cache, and the cost of a byte
  // from another worker's cache.
  constexpr double kWaking = 256 << 10, kWait = 64 << 10, kCache = 1 << 20, kFetched = 10;
  const int workers = workers_for(plan, most);
  if (workers == 1) return 1;
  const Indexed<Strand, int> worker_of = deal_strands(plan, workers);
  const Indexed<Launch, double> fetched =
      bytes_from_other_workers(plan, worker_of, workers, kCache);
  double alone = 0, shared = kWaking;
  std::vector<double> own(at(workers));
  for (const LaunchIndex l : plan.launches.indices()) {
    const Launch& launch = plan.launches[l];
    const int worker = worker_of[launch.strand];
    if (worker >= workers) continue;  // it is enqueued, however many workers there are
    const bool by_all = launch.parts() > 1 || plan.strands[launch.strand].shards > 1;
    const auto elsewhere = [&](const Wait& wait) { return worker_of[wait.strand] != worker; };
    const double bytes = cost(plan, launch);
    const double waiting = std::ranges::any_of(launch.waits, elsewhere) ? kWait : 0;
    const double together = bytes + kFetched * fetched[l];
    alone += bytes;
    if (by_all)
      shared += waiting + together / workers;
    else
      own[at(worker)] += waiting + together;
  }
  return shared + *std::ranges::max_element(own) < alone ? workers : 1;
}

}  // namespace belfry
