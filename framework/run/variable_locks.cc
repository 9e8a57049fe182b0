#include "belfry/framework/run/variable_locks.h"

#include <set>

#include "belfry/framework/core_ops/copy.h"

namespace belfry {

VariableLocks::VariableLocks(const LinkedPlan& linked, Runtime& runtime) {
  const Plan& plan = *linked.plan;
  if (plan.locks != LockDuration::kEachVariable) return;
  holds_.resize(plan.launches.size());
  NodeIndex writer;  // the last node that wrote
  LaunchIndex last;  // its launch, or the launch of the last copy right after it
  for (const LaunchIndex l : plan.launches.indices()) {
    const NodeIndex n = plan.launches[l].node;
    const PlanNode& node = plan.node(n);
    std::set<const void*> touched;
    const auto touch = [&](BufferIndex buffer) {
      const BufferRecord& record = plan.buffers[buffer];
      if (record.kind == BufferKind::kState) touched.insert(runtime.variable_memory(*record.node));
    };
    for (const Value& input : node.inputs) touch(plan.buffer(input));
    for (const BufferIndex buffer : plan.buffer_of[n]) touch(buffer);
    for (const void* memory : touched) holds_[l].locks.push_back(&runtime.variable_locks[memory]);
    const bool copies =
        node.op == &kCopy && node.inputs[0].node == writer && last.value() + 1 == l.value();
    // A write and the copies of its result are one critical section: the copies read variables that
    // the write locks.
    if (copies) holds_[last].keeps = true;
    if (node.writes() > 0) writer = n;
    if (copies || node.writes() > 0) last = l;
  }
}

void VariableLocks::lock(LaunchIndex launch) {
  if (held_ || holds_[launch].locks.empty()) return;
  held_ = &holds_[launch];
  for (std::mutex* lock : held_->locks) lock->lock();
}

void VariableLocks::release_all() {
  if (!held_) return;
  for (std::mutex* lock : held_->locks) lock->unlock();
  held_ = nullptr;
}

}  // namespace belfry
