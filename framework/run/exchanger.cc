#include "belfry/framework/run/exchanger.h"

#include <algorithm>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/describe_with_forward.h"
#include "belfry/framework/run/cpu_executor.h"
#include "belfry/framework/run/failed_launch.h"
#include "belfry/framework/run/gpu_executor.h"

namespace belfry {

using Kind = Command::Kind;

namespace {

RankWatch* ranks_of_processes(const LinkedPlan& linked, const GpuExecutor* gpus) {
  if (!gpus || !gpus->ranks()) return nullptr;
  const bool several = linked.plan->nodes[NodeIndex(0)].node->graph().process().size > 1;
  return several ? &gpus->ranks()->watch() : nullptr;
}

// What other processes learn about the error of a run.
ErrorFields told_to_others(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return fields_of(known);
  } catch (...) {
  }
  return {.why = "a step has failed there"};
}

}  // namespace

std::unique_ptr<Exchanger> Exchanger::make(const LinkedPlan& linked, RunState& run,
                                           const CpuExecutor& cpus, GpuExecutor* gpus) {
  RankWatch* const ranks = ranks_of_processes(linked, gpus);
  if (!ranks && linked.exchanges.empty()) return nullptr;
  return std::unique_ptr<Exchanger>(new Exchanger(linked, run, cpus, gpus, ranks));
}

Exchanger::Exchanger(const LinkedPlan& linked, RunState& run, const CpuExecutor& cpus,
                     GpuExecutor* gpus, RankWatch* ranks)
    : linked_(linked),
      run_(run),
      cpus_(cpus),
      gpus_(gpus),
      ranks_(ranks),
      known_(linked.exchanges.size()) {}

void Exchanger::begin(bool messages) {
  ended_.store(false, std::memory_order_relaxed);
  next_look_ = {};
  connects_ = !messages;
  next_ = messages ? 0 : linked_.exchanges.size();
  under_way_ = {};
  exchange_ = nullptr;
}

Processes::Work::Progress Exchanger::advance(FailureDetector& group) {
  run_.messages().connect(&group);
  try {
    if (run_.failed()) {
      group.end_others(told_to_others(run_.error()));
      return Progress::kEnded;
    }
    const bool ended = ended_.load(std::memory_order_acquire);
    bool moved = false;
    if (under_way_)
      moved = finish(group);
    else if (next_ < linked_.exchanges.size())
      moved = follow(group);
    if (ranks_) watch_ranks(group);
    const bool done = !under_way_ && next_ == linked_.exchanges.size();
    if (done && (!ranks_ || (ended && !run_.failed()))) return Progress::kEnded;
    if (moved) return Progress::kSome;
    if (awaits_worker()) return Progress::kIdle;
    return under_way_ && !ranks_ ? Progress::kMessages : Progress::kNone;
  } catch (...) {
    group.fail(std::current_exception());  // before the tensors of its messages go
    run_.fail();
    return Progress::kEnded;
  }
}

std::string Exchanger::doing() const {
  if (connects_) return "connects its GPUs";
  if (under_way_) return cat("sends and receives ", linked_.node_of(under_way_).describe());
  if (const LaunchIndex launch = cpus_.running())
    return cat("computes ", describe_with_forward(linked_.node_of(launch)));
  if (next_ == linked_.exchanges.size()) return ranks_ ? "waits for its GPUs" : "ends its step";
  const Command& next = linked_.exchanges[next_];
  if (next.kind != Kind::kWaitStamp) return "is about to send";
  const LaunchIndex awaited = linked_.plan->awaited({next.strand, next.position});
  return cat("waits for its GPU to compute ", linked_.node_of(awaited).describe());
}

// Follows the list up to a launch, or up to a command that must wait.
bool Exchanger::follow(FailureDetector& group) {
  const Command& command = linked_.exchanges[next_];
  if (!is_over(command, run_, gpus_)) return false;
  if (command.kind == Kind::kLaunch) start(command.launch, group);
  if (command.kind == Kind::kSignal) run_.signal(command.strand, command.position);
  ++next_;
  return true;
}

// Whether a worker will wake this thread. Nobody wakes it for a stamp of a GPU.
bool Exchanger::awaits_worker() const {
  return !under_way_ && !ranks_ && next_ < linked_.exchanges.size() &&
         linked_.exchanges[next_].kind == Kind::kWait;
}

// A process counts as late if its host has enqueued fewer parts.
void Exchanger::watch_ranks(FailureDetector& group) {
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  if (group.failure()) std::rethrow_exception(group.failure());
  for (const std::int64_t enqueued = ranks_->enqueued(); counted_ < enqueued; ++counted_)
    group.heartbeats().count_launch();
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  ranks_->await_others(group.heartbeats().any_late());
  if (const auto waiting = ranks_->waiting()) group.waiting(waiting->what, waiting->since);
}

void Exchanger::start(LaunchIndex launch, FailureDetector& group) {
  const LinkedLaunch& linked = linked_.launch(launch);
  if (run_.recording) run_.recording->launches[launch].start = run_.recording->now();
  under_way_ = launch;
  began_ = std::chrono::steady_clock::now();
  group.heartbeats().count_launch();
  linked_.guard->before(launch);
  if (linked.writes) run_.has_written.store(true, std::memory_order_relaxed);
  const KernelPointers pointers = linked.pointers(linked.range, run_.step);
  (*linked.run)(pointers);
  exchange_ = &next_messages(launch, pointers);
  for (const Exchange::Copied& copied : exchange_->kept)
    std::ranges::copy(copied.from, copied.to.begin());
  for (GroupMessage& message : exchange_->received) group.receive(message);
  for (GroupMessage& message : exchange_->sent) group.send(message);
  for (GroupMessage& message : exchange_->summed) group.sum(message, exchange_->dtype);
}

Exchange& Exchanger::next_messages(LaunchIndex launch, const KernelPointers& pointers) {
  Known& known = known_[next_];
  if (!std::ranges::equal(known.inputs, pointers.all_inputs())) {
    const PlanNode& node = linked_.plan->node(linked_.plan->launches[launch].node);
    known.inputs.assign(pointers.all_inputs().begin(), pointers.all_inputs().end());
    known.exchange = node.op->exchange(*node.node, pointers);
  }
  return known.exchange;
}

bool Exchanger::finish(FailureDetector& group) {
  const bool moved = group.poll();
  if (!exchange_->done()) {
    if (!moved) group.waiting(linked_.node_of(under_way_).describe(), began_);
    return moved;
  }
  if (run_.recording) run_.recording->launches[under_way_].end = run_.recording->now();
  linked_.guard->after(under_way_);
  under_way_ = {};
  return true;
}

}  // namespace belfry
