// How steps use NCCL: each rank's part of a collective is a launch on a strand for communication.
// The thread that enqueues for its GPU hands the part to the communicators. A thread that polls
// stamps also watches the ranks. A failure aborts the communicators; the next run makes them anew.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/watched_group.h"
#include "belfry/framework/plan/rank_launch.h"
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/ranks.h"
#include "belfry/framework/run/run_state.h"

namespace belfry {
namespace {

class NcclRanks final : public Ranks {
 public:
  NcclRanks(const LinkedPlan& linked, RunState& run, Runtime& runtime, RankStrands strands);

  bool begin() override;
  void connect(int thread) override;
  void expect(StrandIndex strand, std::int64_t epoch) override;
  void check() override;
  void fail() noexcept override;
  void end() noexcept override;

 private:
  // The watch over a strand: how long what was enqueued there has not finished.
  struct Watched {
    StrandIndex strand = {};
    Stamp finished = {};
    std::atomic<std::int64_t> enqueued{0};  // epoch
    std::int64_t seen = -1;                 // epoch that had been finished at the last look
    std::chrono::steady_clock::time_point since = {};
  };
  void make(Communicators& communicators);
  void connect_collectives(int thread);
  // The first collective that was enqueued and has not finished, and where; "" if there is none.
  std::string unfinished() const;

  const LinkedPlan& linked_;
  const Plan& plan_;
  RunState& run_;
  Runtime& runtime_;
  const RankStrands strands_;
  std::vector<Watched> watched_;          // strands that communicate
  std::map<Communicators*, int> joined_;  // that the plan uses; Communicators::made at connect()
  std::mutex watching_;                   // over watched_, but for `enqueued`
  bool failed_ = false;                   // since the last end()
};

NcclRanks::NcclRanks(const LinkedPlan& linked, RunState& run, Runtime& runtime, RankStrands strands)
    : linked_(linked),
      plan_(*linked.plan),
      run_(run),
      runtime_(runtime),
      strands_(std::move(strands)),
      watched_(at(std::ranges::count(plan_.strands, true, &Strand::communicates))) {
  auto next = watched_.begin();
  for (const StrandIndex s : plan_.strands.indices()) {
    if (!plan_.strands[s].communicates) continue;
    next->strand = s;
    (next++)->finished = strands_.stamp(s);
  }
  for (const Launch& launch : plan_.launches) {
    if (!launch.rank) continue;
    launch.rank->join(runtime.gpus->communicators(launch.rank->rank().devices), run.failure());
    joined_[&launch.rank->communicators()] = 0;
  }
}

// Whether communicators have been made, for this step or another, since this step connected last.
bool NcclRanks::begin() {
  bool connected = true;
  for (auto& [communicators, made] : joined_) {
    if (!communicators->live) make(*communicators);
    connected = connected && communicators->made == made;
    made = communicators->made;
  }
  return !connected;
}

void NcclRanks::make(Communicators& communicators) {
  const Device& first = *runtime_.devices[at(plan_.strands[watched_[0].strand].device)];
  communicators.live = first.backend->make_communicators(communicators.gpus, runtime_.nccl_timeout);
  ++communicators.made;
}

void NcclRanks::connect(int thread) {
  connect_collectives(thread);
  const int device = linked_.program(thread).device;
  const int gpu = runtime_.devices[at(device)]->gpu;
  const auto here = [&](const Watched& w) { return plan_.strands[w.strand].gpu == gpu; };
  for (Watched& watched : watched_) {
    if (!here(watched)) continue;
    const std::int64_t epoch = run_.epoch(watched.strand, 0);
    strands_.stream(watched.strand).stamp(watched.finished.counter(), epoch);
    watched.enqueued.store(epoch, std::memory_order_release);
  }
  for (Watched& watched : watched_) {
    if (!here(watched) || !strands_.await_first(watched.strand)) continue;
    const std::int64_t before = run_.epoch(watched.strand, -1);
    watched.enqueued.store(before, std::memory_order_release);
    watched.finished.set(before);
  }
}

// Ranks that one thread serves go together: connections are made while all ranks of a collective
// are there.
void NcclRanks::connect_collectives(int thread) {
  std::vector<RankTensors> group;
  const RankLaunch* first = nullptr;
  const auto flush = [&] {
    if (first) first->communicators().live->all_reduce(first->reduction(), group, run_.failure());
    group.clear();
    first = nullptr;
  };
  for (const Command& command : linked_.program(thread).commands) {
    if (command.kind != Command::Kind::kLaunch) continue;
    const LinkedLaunch& linked = linked_.linked(command.launch);
    if (!linked.launch->rank) continue;
    RankLaunch& rank = *linked.launch->rank;
    if (first && &first->node() != &rank.node()) flush();
    first = &rank;
    GpuStream& of = strands_.stream(linked.launch->strand);
    of.serve(rank.node());
    group.push_back(rank.in_outputs(linked.pointers(linked.launch->range, 0), of));
  }
  flush();
}

void NcclRanks::expect(StrandIndex strand, std::int64_t epoch) {
  std::ranges::find(watched_, strand, &Watched::strand)
      ->enqueued.store(epoch, std::memory_order_release);
}

void NcclRanks::check() {
  const std::unique_lock lock(watching_, std::try_to_lock);
  if (!lock) return;
  try {
    for (const auto& [communicators, made] : joined_) communicators->live->check();
  } catch (const CommError& error) {
    const std::string what = unfinished();
    throw CommError(cat(error.what(), what.empty() ? "" : "; it failed ", what));
  }
  const auto now = std::chrono::steady_clock::now();
  for (Watched& watched : watched_) {
    const std::int64_t finished = watched.finished.value();
    const bool waits = watched.enqueued.load(std::memory_order_acquire) > finished;
    if (!waits || watched.seen != finished) {
      watched.seen = waits ? finished : -1;
      watched.since = now;
    } else if (now - watched.since > runtime_.nccl_timeout) {
      throw StallError(cat(unfinished(), " has not finished within ", runtime_.nccl_timeout.count(),
                           " s: not all GPUs take part, or they do not reach each other "
                           "(NCCL_DEBUG=INFO says what NCCL does); steps that take longer need a "
                           "larger nccl_timeout_s"));
    }
  }
}

std::string NcclRanks::unfinished() const {
  LaunchIndex first;
  StrandIndex where;
  for (const Watched& watched : watched_) {
    const std::int64_t finished = watched.finished.value();
    if (watched.enqueued.load(std::memory_order_acquire) <= finished) continue;
    const std::vector<LaunchIndex>& launches = plan_.strands[watched.strand].launches;
    const std::int64_t position = finished - run_.epoch(watched.strand, -1);
    if (position < 0 || position >= std::ssize(launches)) continue;
    if (!first || launches[at(position)] < first) {
      first = launches[at(position)];
      where = watched.strand;
    }
  }
  if (!first) return "";
  return cat(describe_collective(plan_.launches[first].rank->node()), ", on ",
             runtime_.devices[at(plan_.strands[where].device)]->spec);
}

void NcclRanks::fail() noexcept {
  for (const auto& [communicators, made] : joined_)
    if (communicators->live) communicators->live->abort_all();
  failed_ = true;
  for (Watched& watched : watched_) {
    watched.seen = -1;
    watched.enqueued.store(0, std::memory_order_relaxed);
  }
}

void NcclRanks::end() noexcept {
  if (!std::exchange(failed_, false)) return;
  for (const auto& [communicators, made] : joined_) communicators->live.reset();
}

}  // namespace

std::unique_ptr<Ranks> make_nccl_ranks(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                                       RankStrands strands) {
  return std::make_unique<NcclRanks>(linked, run, runtime, std::move(strands));
}

}  // namespace belfry
