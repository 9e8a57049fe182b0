// How steps use NCCL: each rank's part of a collective is a launch on a strand for communication.
// The thread that enqueues for its GPU hands the part to the communicators. A thread that polls
// stamps also watches the ranks. A failure aborts the communicators; the next run makes new ones.
//
// With several processes, the ranks of a graph are those of all processes, numbered by process.
// Before a step connects, the processes compare its collectives. Rank 0 hands out an id for each
// communicator, in the order in which the plan uses them. So all processes make communicators in
// the same order.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/plan_kernels/rank_launch.h"
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/ranks.h"
#include "belfry/framework/run/run_state.h"

namespace belfry {
namespace {

class NcclRanks final : public Ranks, private RankWatch {
 public:
  NcclRanks(const LinkedPlan& linked, RunState& run, Runtime& runtime, RankStrands strands);

  std::function<void(int thread)> begin() override;
  void end() noexcept override;
  void fail() noexcept override;
  RankWatch& watch() override { return *this; }

 private:
  void expect(StrandIndex strand, std::int64_t epoch) override;
  void check() override;
  std::optional<Waiting> waiting() override;
  std::int64_t enqueued() const override { return enqueued_.load(std::memory_order_acquire); }
  void await_others(bool late) override { others_late_.store(late, std::memory_order_relaxed); }

  using Clock = std::chrono::steady_clock;

  // A communicator that the plan uses.
  struct Joined {
    Communicators* all;
    int made = 0;         // Communicators::made at connect()
    std::string id = {};  // with several processes
  };
  // The watch over a strand: since when its enqueued work has not finished.
  struct Pending {
    StrandIndex strand = {};
    Stamp finished = {};
    std::atomic<std::int64_t> enqueued{0};  // last epoch enqueued
    std::int64_t seen = -1;                 // finished epoch at the last look; -1: nothing waits
    Clock::time_point since = {};

    bool waits() const { return seen >= 0; }
  };

  const GpuBackend& backend() const;
  void connect(int thread);
  void meet_processes();
  std::vector<AgreedItem> collectives() const;
  bool make_all();
  void make(Joined& of);
  void connect_collectives(int thread);
  void look(Clock::time_point now);
  // The first enqueued collective that has not finished, and its place; "" if there is none.
  std::string unfinished() const;

  const LinkedPlan& linked_;
  const Plan& plan_;
  RunState& run_;
  Runtime& runtime_;
  const RankStrands strands_;
  const ProcessPlace place_;
  Processes* const processes_;    // null in a graph of one process
  std::vector<Pending> pending_;  // strands of GPUs that communicate
  std::vector<Joined> joined_;    // in order of first use by the plan
  std::mutex making_;             // guards joined_, while threads connect
  std::mutex watching_;           // guards pending_, except `enqueued`
  std::atomic<std::int64_t> enqueued_{0};
  std::atomic<bool> others_late_{false};
  bool failed_ = false;  // since the last end()
};

bool communicates_by_gpu(const Strand& strand) { return strand.communicates && strand.gpu >= 0; }

NcclRanks::NcclRanks(const LinkedPlan& linked, RunState& run, Runtime& runtime, RankStrands strands)
    : linked_(linked),
      plan_(*linked.plan),
      run_(run),
      runtime_(runtime),
      strands_(std::move(strands)),
      place_(plan_.nodes[NodeIndex(0)].node->graph().process()),
      processes_(place_.size > 1 ? runtime.processes : nullptr),
      pending_(at(std::ranges::count_if(plan_.strands, communicates_by_gpu))) {
  require(place_.size == 1 || processes_,
          "the graph is of one of several processes, and the session of none; set "
          "SessionOptions::processes");
  auto next = pending_.begin();
  for (const StrandIndex s : plan_.strands.indices()) {
    if (!communicates_by_gpu(plan_.strands[s])) continue;
    next->strand = s;
    (next++)->finished = strands_.stamp(s);
  }
  for (const Launch& launch : plan_.launches) {
    if (!launch.rank) continue;
    launch.rank->join(runtime.gpus->communicators(launch.rank->rank().devices), run.failure());
    Communicators* const all = &launch.rank->communicators();
    if (std::ranges::find(joined_, all, &Joined::all) == joined_.end())
      joined_.push_back({.all = all});
  }
}

const GpuBackend& NcclRanks::backend() const {
  return *runtime_.devices[at(plan_.strands[pending_[0].strand].device)]->backend;
}

// A step need not connect if all communicators are alive, and none was made again since it last
// connected.
std::function<void(int thread)> NcclRanks::begin() {
  const bool connected = std::ranges::all_of(
      joined_, [](const Joined& of) { return of.all->live && of.all->made == of.made; });
  others_late_.store(processes_ != nullptr, std::memory_order_relaxed);
  if (connected) return nullptr;
  if (processes_) meet_processes();
  return [this](int thread) { connect(thread); };
}

// All processes call it for the same steps in the same order.
void NcclRanks::meet_processes() {
  require_agreement(*processes_, collectives());
  for (Joined& of : joined_)
    if (!of.all->live)
      of.id = processes_->gather(place_.rank == 0 ? backend().communicator_id() : "")[0];
}

// The collectives, on which all processes must agree. If one process has a different collective
// next, NCCL hangs, or adds up wrong tensors.
std::vector<AgreedItem> NcclRanks::collectives() const {
  std::vector<AgreedItem> items;
  for (const Joined& of : joined_)
    items.push_back(
        {cat("communicator ", &of - joined_.data(), " of the step"),
         cat(of.all->gpus.size(), " GPUs in each process", of.all->live ? "" : ", to be made")});
  for (const Launch& launch : plan_.launches) {
    if (!launch.rank || launch.rank->rank().number > 0) continue;
    const RankReduction& what = launch.rank->reduction();
    const std::string reduced = launch.rank->exchanges()
                                    ? cat(" of ", name_of(what.dtype))
                                    : cat(" of ", join(what.elements), " elements of ",
                                          name_of(what.dtype), ", divided by ", what.divisor);
    const auto used =
        std::ranges::find(joined_, &launch.rank->communicators(), &Joined::all) - joined_.begin();
    items.push_back({cat("collective ", items.size() - joined_.size(), " of the step"),
                     cat(what.node->op().name, " '", what.node->logical_name(), "'", reduced,
                         ", by communicator ", used, ", built at ", what.node->origin().site)});
  }
  return items;
}

// One thread makes all communicators while the others wait. False if the run has failed.
bool NcclRanks::make_all() {
  const std::lock_guard lock(making_);
  if (run_.failed()) return false;
  try {
    for (Joined& of : joined_) {
      if (!of.all->live) make(of);
      of.made = of.all->made;
    }
  } catch (...) {
    run_.fail();
    return false;
  }
  return true;
}

void NcclRanks::make(Joined& of) {
  const auto here = static_cast<int>(of.all->gpus.size());
  RankWorld world;
  if (processes_) world = {place_.rank * here, place_.size * here, of.id};
  of.all->live =
      backend().make_communicators(of.all->gpus, runtime_.nccl_timeout, world, run_.failure());
  ++of.all->made;
}

void NcclRanks::connect(int thread) {
  if (!make_all()) return;
  connect_collectives(thread);
  const int device = linked_.program(thread).device;
  const int gpu = runtime_.devices[at(device)]->gpu;
  const auto here = [&](const Pending& w) { return plan_.strands[w.strand].gpu == gpu; };
  for (Pending& pending : pending_) {
    if (!here(pending)) continue;
    const std::int64_t epoch = run_.epoch(pending.strand, 0);
    strands_.stream(pending.strand).stamp(pending.finished.counter(), epoch);
    pending.enqueued.store(epoch, std::memory_order_release);
  }
  for (Pending& pending : pending_) {
    if (!here(pending) || !strands_.await_first(pending.strand)) continue;
    const std::int64_t before = run_.epoch(pending.strand, -1);
    pending.enqueued.store(before, std::memory_order_release);
    pending.finished.set(before);
  }
}

// Ranks of one thread connect together: a connection needs all ranks of a collective.
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
    const LinkedLaunch& linked = linked_.launch(command.launch);
    if (!linked.launch->rank) continue;
    RankLaunch& rank = *linked.launch->rank;
    GpuStream& of = strands_.stream(linked.launch->strand);
    if (rank.exchanges()) {
      flush();
      of.serve(rank.node());
      rank.enqueue(linked.pointers(linked.launch->range, 0), of);
      continue;
    }
    if (first && &first->node() != &rank.node()) flush();
    first = &rank;
    of.serve(rank.node());
    group.push_back(rank.in_outputs(linked.pointers(linked.launch->range, 0), of));
  }
  flush();
}

void NcclRanks::expect(StrandIndex strand, std::int64_t epoch) {
  enqueued_.fetch_add(1, std::memory_order_release);
  std::ranges::find(pending_, strand, &Pending::strand)
      ->enqueued.store(epoch, std::memory_order_release);
}

void NcclRanks::check() {
  const std::unique_lock lock(watching_, std::try_to_lock);
  if (!lock) return;
  try {
    for (const Joined& of : joined_) of.all->live->check();
  } catch (const CommError& error) {
    const std::string what = unfinished();
    throw CommError(cat(error.what(), what.empty() ? "" : "; it failed ", what));
  }
  const Clock::time_point now = Clock::now();
  look(now);
  if (others_late_.load(std::memory_order_relaxed)) return;
  for (const Pending& pending : pending_)
    if (pending.waits() && now - pending.since > runtime_.nccl_timeout)
      throw StallError(about_option(
          "stall_abort_seconds", unfinished(), " has not finished within ",
          runtime_.nccl_timeout.count(), processes_ ? " s, and no process is late with it" : " s",
          ": not all GPUs take part, or they do not reach each other (NCCL_DEBUG=INFO says what "
          "NCCL does); steps that take longer need a larger ",
          option_name("stall_abort_seconds")));
}

// Records since when each strand has waited for its current launch.
void NcclRanks::look(Clock::time_point now) {
  for (Pending& pending : pending_) {
    const std::int64_t finished = pending.finished.value();
    const bool waits = pending.enqueued.load(std::memory_order_acquire) > finished;
    if (waits && pending.seen == finished) continue;
    pending.seen = waits ? finished : -1;
    pending.since = now;
  }
}

std::optional<RankWatch::Waiting> NcclRanks::waiting() {
  constexpr std::chrono::milliseconds kWorthTelling{100};
  const std::lock_guard lock(watching_);
  const Clock::time_point now = Clock::now();
  look(now);
  std::optional<Clock::time_point> since;
  for (const Pending& pending : pending_)
    if (pending.waits() && (!since || pending.since < *since)) since = pending.since;
  if (!since || now - *since < kWorthTelling) return std::nullopt;
  return Waiting{unfinished(), *since};
}

std::string NcclRanks::unfinished() const {
  LaunchIndex first;
  StrandIndex where;
  for (const Pending& pending : pending_) {
    const std::int64_t finished = pending.finished.value();
    if (pending.enqueued.load(std::memory_order_acquire) <= finished) continue;
    const std::vector<LaunchIndex>& launches = plan_.strands[pending.strand].launches;
    std::int64_t position = finished - run_.epoch(pending.strand, -1);
    if (position < 0) continue;
    while (position < std::ssize(launches) && !plan_.launches[launches[at(position)]].rank)
      ++position;
    if (position == std::ssize(launches)) continue;
    if (!first || launches[at(position)] < first) {
      first = launches[at(position)];
      where = pending.strand;
    }
  }
  if (!first) return "";
  return cat(describe_collective(plan_.launches[first].rank->node()), ", on ",
             runtime_.devices[at(plan_.strands[where].device)]->spec);
}

void NcclRanks::fail() noexcept {
  for (const Joined& of : joined_)
    if (of.all->live) of.all->live->abort_all();
  failed_ = true;
  for (Pending& pending : pending_) {
    pending.seen = -1;
    pending.enqueued.store(0, std::memory_order_relaxed);
  }
}

void NcclRanks::end() noexcept {
  if (!std::exchange(failed_, false)) return;
  for (const Joined& of : joined_) of.all->live.reset();
}

}  // namespace

std::unique_ptr<Ranks> make_nccl_ranks(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                                       RankStrands strands) {
  return std::make_unique<NcclRanks>(linked, run, runtime, std::move(strands));
}

}  // namespace belfry
