// Enqueues the launch of one rank. It sums the participants on its GPU, if there are several, and
// then does its part of the all-reduce. Or it exchanges messages.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

class RankLaunch {
 public:
  // `node` is the part of a rank. `sum` leaves the sum of the participants in their outputs, which
  // are one tensor; it is empty for one participant.
  RankLaunch(const PlanNode& node, GpuRun sum);
  // The sum of the participants on the rank's GPU; empty if there is only one.
  const GpuRun& sum() const { return sum_; }

  const Node& node() const { return *what_.node; }
  const Rank& rank() const { return *rank_; }
  const RankReduction& reduction() const { return what_; }
  // Whether the launch sends and receives; else it reduces.
  bool exchanges() const { return exchange_ != nullptr; }

  // Call it before the first run. `failed` is the flag of a failed run.
  void join(Communicators& communicators, const std::atomic<bool>& failed) {
    communicators_ = &communicators;
    failed_ = &failed;
  }
  Communicators& communicators() const { return *communicators_; }

  // Throws CommError naming the variables, too.
  void enqueue(const KernelPointers& p, GpuStream& stream);
  // The tensors that enqueue() reduces, with the outputs in place of the inputs. Reducing these,
  // whatever they hold, opens all connections that a step uses. Valid until the next call.
  RankTensors in_outputs(const KernelPointers& p, GpuStream& stream);

 private:
  void reduce(const KernelPointers& p, GpuStream& stream);
  void exchange(const KernelPointers& p, GpuStream& stream);

  RankReduction what_;
  Exchange (*exchange_)(const Node& node, const KernelPointers& pointers) = nullptr;
  std::shared_ptr<const Rank> rank_;
  GpuRun sum_;
  std::vector<void*> results_;  // one per tensor
  Communicators* communicators_ = nullptr;
  const std::atomic<bool>* failed_ = nullptr;
};

// "NcclAllReduce 'sum' (built at model.cc:4), which combines the gradients of variables 'a' and
// 'b'".
std::string describe_collective(const Node& collective);

}  // namespace belfry
