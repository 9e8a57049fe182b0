#include "belfry/framework/run/exchanger.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/run/failed_launch.h"

namespace belfry {

using Kind = Command::Kind;

void Exchanger::begin() {
  next_ = 0;
  under_way_ = {};
  exchange_ = {};
}

Processes::Work::Progress Exchanger::advance(WatchedGroup& group) {
  try {
    if (run_.failed()) {
      group.end_others("a step has failed there");
      return Progress::kEnded;
    }
    const bool moved = under_way_ ? finish(group) : follow(group);
    if (!under_way_ && next_ == linked_.exchanges.size()) return Progress::kEnded;
    return moved ? Progress::kSome : Progress::kNone;
  } catch (...) {
    run_.fail();
    return Progress::kEnded;
  }
}

std::string Exchanger::doing() const {
  if (next_ == linked_.exchanges.size()) return "ends its step";
  if (under_way_) return cat("sends and receives ", linked_.node_of(under_way_).describe());
  const Command& next = linked_.exchanges[next_];
  if (next.kind != Kind::kWait) return "is about to send";
  // The first launch of that strand that has not run.
  int run = 0;
  while (run < next.position && run_.reached(next.strand, run)) ++run;
  const LaunchIndex launch = linked_.plan->strands[next.strand].launches[at(run)];
  return cat("computes ", linked_.node_of(launch).describe());
}

// Up to a launch, or to what must wait.
bool Exchanger::follow(WatchedGroup& group) {
  const Command& command = linked_.exchanges[next_];
  if (command.kind == Kind::kWait && !run_.reached(command.strand, command.position)) return false;
  if (command.kind == Kind::kLaunch) start(command.launch, group);
  if (command.kind == Kind::kSignal) run_.signal(command.strand, command.position);
  ++next_;
  return true;
}

void Exchanger::start(LaunchIndex launch, WatchedGroup& group) {
  const LinkedLaunch& linked = linked_.linked(launch);
  const PlanNode& planned = linked_.plan->node(linked_.plan->launches[launch].node);
  if (run_.recording) run_.recording->launches[launch].start = run_.recording->now();
  under_way_ = launch;
  began_ = std::chrono::steady_clock::now();
  group.signs().count_launch();
  linked_.guard->before(launch);
  const Pointers pointers = linked.pointers(linked.range, run_.step);
  (*linked.run)(pointers);  // what is this process's own
  exchange_ = planned.op->exchange(*planned.node, pointers);
  for (GroupMessage& message : exchange_.received) group.receive(message);
  for (GroupMessage& message : exchange_.sent) group.send(message);
  for (GroupMessage& message : exchange_.summed) group.sum(message, exchange_.dtype);
}

bool Exchanger::finish(WatchedGroup& group) {
  const bool moved = group.poll();
  if (!exchange_.done()) {
    if (!moved) group.waiting(linked_.node_of(under_way_).describe(), began_);
    return moved;
  }
  if (run_.recording) run_.recording->launches[under_way_].end = run_.recording->now();
  linked_.guard->after(under_way_);
  under_way_ = {};
  return true;
}

}  // namespace belfry
