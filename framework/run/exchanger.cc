#include "belfry/framework/run/exchanger.h"

#include <algorithm>
#include <cstring>

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
    : linked_(linked), run_(run), cpus_(cpus), gpus_(gpus), ranks_(ranks) {
  for (const std::vector<Command>& commands : linked.exchanges)
    lists_.push_back({&commands, std::vector<Known>(commands.size())});
}

void Exchanger::forget_messages() {
  for (List& list : lists_) list.known.assign(list.known.size(), {});
}

void Exchanger::begin(bool messages) {
  ended_.store(false, std::memory_order_relaxed);
  next_look_ = {};
  connects_ = !messages;
  for (List& list : lists_) {
    list.next = messages ? 0 : list.commands->size();
    list.under_way = nullptr;
  }
}

Processes::Work::Progress Exchanger::advance(FailureDetector& group) {
  run_.messages().connect(&group);
  try {
    if (run_.failed()) {
      group.end_others(told_to_others(run_.error()));
      return Progress::kEnded;
    }
    if (group.failure()) std::rethrow_exception(group.failure());
    const bool ended = ended_.load(std::memory_order_acquire);
    if (oldest_under_way()) look_at_messages(group);
    bool moved = false;
    for (List& list : lists_) moved = follow(list, group) || moved;
    if (ranks_) watch_ranks(group);
    if (all_done() && (!ranks_ || (ended && !run_.failed()))) return Progress::kEnded;
    if (moved) return Progress::kSome;
    const List* const oldest = oldest_under_way();
    if (oldest && !cpus_.running())
      group.waiting(linked_.node_of(oldest->command().launch).describe(), oldest->began);
    if (awaits_gpus()) return Progress::kNone;
    return oldest ? Progress::kMessages : Progress::kIdle;
  } catch (...) {
    group.fail(std::current_exception());  // before the tensors of its messages go
    run_.fail();
    return Progress::kEnded;
  }
}

std::string Exchanger::doing() const {
  if (connects_) return "connects its GPUs";
  if (const LaunchIndex launch = cpus_.running())
    return cat("computes ", describe_with_forward(linked_.node_of(launch)));
  if (const List* const oldest = oldest_under_way())
    return cat("sends and receives ", linked_.node_of(oldest->command().launch).describe());
  const auto next = std::ranges::find_if_not(lists_, &List::done);
  if (next == lists_.end()) return ranks_ ? "waits for its GPUs" : "ends its step";
  const Command& command = next->command();
  if (command.kind != Kind::kWaitStamp) return "is about to send";
  const LaunchIndex awaited = linked_.plan->awaited({command.strand, command.position});
  return cat("waits for its GPU to compute ", linked_.node_of(awaited).describe());
}

bool Exchanger::follow(List& list, FailureDetector& group) {
  const std::size_t before = list.next;
  bool started = false;
  for (; !list.done(); ++list.next) {
    const Command& command = list.command();
    if (!is_over(command, run_, gpus_) || run_.failed()) break;  // poison is no signal
    if (command.kind == Kind::kSignal) run_.signal(command.strand, command.position);
    if (command.kind != Kind::kLaunch) continue;
    if (!list.under_way) {
      start(list, group);
      started = true;
    }
    if (!list.under_way->done()) break;
    finish(list);
  }
  return started || list.next > before;
}

// A process that computes does not wait for its messages.
void Exchanger::look_at_messages(FailureDetector& group) {
  if (!cpus_.running()) {
    group.poll();
    return;
  }
  group.beat();
  if (group.failure()) std::rethrow_exception(group.failure());
}

const Exchanger::List* Exchanger::oldest_under_way() const {
  const List* oldest = nullptr;
  for (const List& list : lists_)
    if (list.under_way && (!oldest || list.began < oldest->began)) oldest = &list;
  return oldest;
}

// Workers wake this thread. Nobody wakes it for a stamp of a GPU.
bool Exchanger::awaits_gpus() const {
  return ranks_ || std::ranges::any_of(lists_, [](const List& list) {
           return !list.done() && list.command().kind == Kind::kWaitStamp;
         });
}

// A process counts as late if its host has enqueued fewer parts.
void Exchanger::watch_ranks(FailureDetector& group) {
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  for (const std::int64_t enqueued = ranks_->enqueued(); counted_ < enqueued; ++counted_)
    group.heartbeats().count_launch();
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  ranks_->await_others(group.heartbeats().any_late());
  if (const auto waiting = ranks_->waiting()) group.waiting(waiting->what, waiting->since);
}

void Exchanger::start(List& list, FailureDetector& group) {
  const LaunchIndex launch = list.command().launch;
  const LinkedLaunch& linked = linked_.launch(launch);
  if (run_.recording) run_.recording->launches[launch].start = run_.recording->now();
  list.began = std::chrono::steady_clock::now();
  if (linked_.plan->node(linked.launch->node).op->exchange) group.heartbeats().count_launch();
  linked_.guard->before(launch);
  if (linked.writes) run_.has_written.store(true, std::memory_order_relaxed);
  const KernelPointers pointers = linked.pointers(linked.range, run_.step);
  (*linked.run)(pointers);
  Exchange& messages = next_messages(list, pointers);
  list.under_way = &messages;
  for (const Exchange::Copied& copied : messages.kept)
    if (!copied.from.empty()) std::memcpy(copied.to.data(), copied.from.data(), copied.from.size());
  for (GroupMessage& message : messages.received) group.receive(message);
  for (GroupMessage& message : messages.sent) group.send(message);
  for (GroupMessage& message : messages.summed) group.sum(message, messages.dtype);
}

void Exchanger::finish(List& list) {
  const LaunchIndex launch = list.command().launch;
  if (run_.recording) run_.recording->launches[launch].end = run_.recording->now();
  linked_.guard->after(launch);
  list.under_way = nullptr;
}

// Of the launch that is the strand's next command.
Exchange& Exchanger::next_messages(List& list, const KernelPointers& pointers) {
  Known& known = list.known[list.next];
  if (!std::ranges::equal(known.inputs, pointers.all_inputs())) {
    const PlanNode& node = linked_.plan->node(linked_.plan->launches[list.command().launch].node);
    known.inputs.assign(pointers.all_inputs().begin(), pointers.all_inputs().end());
    if (node.op->exchange)  // not if it adds what has arrived
      known.exchange = node.op->exchange(*node.node, pointers);
  }
  return known.exchange;
}

}  // namespace belfry
