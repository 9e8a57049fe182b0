// How steps use NCCL: each rank's part of a collective is a launch on a strand for communication.
// The thread that enqueues for its GPU hands the part to the communicators. A thread that polls
// stamps also watches the ranks. A failure aborts the communicators; the next run makes them anew.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/ranks.h"
#include "belfry/framework/run/run_state.h"

namespace belfry {

class NcclRanks final : public Ranks {
 public:
  // `stamp_of`: what a GPU stamps for a strand.
  NcclRanks(const LinkedPlan& linked, RunState& run, Runtime& runtime,
            const std::function<Stamp(StrandIndex)>& stamp_of);

  // Makes the communicators that the plan needs, if they are not there any more.
  bool begin() override;
  // Runs each collective of a thread's GPU once, with whatever is in its outputs, so that all
  // connections are made. `finished` waits for what has been enqueued in a strand.
  void connect(int thread, const std::function<GpuStream&(StrandIndex)>& stream,
               const std::function<bool(StrandIndex)>& finished);
  void expect(StrandIndex strand, std::int64_t epoch) override;
  void check() override;
  void end() override {}
  void fail() noexcept override;
  // After fail(), when streams have been drained.
  void end_communicators();

 private:
  // The watch over a strand: how long what was enqueued there has not finished.
  struct Watched {
    StrandIndex strand = {};
    Stamp finished = {};
    std::atomic<std::int64_t> enqueued{0};  // epoch
    std::int64_t seen = -1;                 // epoch that had been finished at the last look
    std::chrono::steady_clock::time_point since = {};
  };
  void connect_collectives(int thread, const std::function<GpuStream&(StrandIndex)>& stream);
  // The first collective that was enqueued and has not finished, and where; "" if there is none.
  std::string unfinished() const;

  const LinkedPlan& linked_;
  const Plan& plan_;
  RunState& run_;
  Runtime& runtime_;
  std::vector<Watched> watched_;          // strands that communicate
  std::map<Communicators*, int> joined_;  // that the plan uses; Communicators::made at connect()
  std::mutex watching_;                   // over watched_, but for `enqueued`
};

}  // namespace belfry
