#include "belfry/framework/run/exchanger.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/run/failed_launch.h"

namespace belfry {

using Kind = Command::Kind;

void Exchanger::begin() {
  next_ = 0;
  under_way_ = {};
  messages_.clear();
}

Processes::Work::Progress Exchanger::advance(ProcessGroup& group) {
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

// Up to a launch, or to what must wait.
bool Exchanger::follow(ProcessGroup& group) {
  const Command& command = linked_.exchanges[next_];
  if (command.kind == Kind::kWait && !run_.reached(command.strand, command.position)) return false;
  if (command.kind == Kind::kLaunch) start(command.launch, group);
  if (command.kind == Kind::kSignal) run_.signal(command.strand, command.position);
  ++next_;
  return true;
}

void Exchanger::start(LaunchIndex launch, ProcessGroup& group) {
  const LinkedLaunch& linked = linked_.linked(launch);
  const Node& node = linked_.node_of(launch);
  if (run_.recording) run_.recording->launches[launch].start = run_.recording->now();
  under_way_ = launch;
  linked_.guard->before(launch);
  const Pointers pointers = linked.pointers(linked.range, run_.step);
  auto [received, sent] = node.op().exchange(node, pointers);
  messages_ = std::move(received);
  const std::size_t first_sent = messages_.size();
  messages_.insert(messages_.end(), sent.begin(), sent.end());
  for (std::size_t i = 0; i < messages_.size(); ++i)
    i < first_sent ? group.receive(messages_[i]) : group.send(messages_[i]);
  (*linked.run)(pointers);  // what is this process's own
}

bool Exchanger::finish(ProcessGroup& group) {
  const bool moved = group.poll();
  if (!std::ranges::all_of(messages_, &GroupMessage::done)) return moved;
  if (run_.recording) run_.recording->launches[under_way_].end = run_.recording->now();
  linked_.guard->after(under_way_);
  under_way_ = {};
  return true;
}

}  // namespace belfry
