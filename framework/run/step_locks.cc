// What steps of Locks::kEachVariable hold, launch by launch. They have one worker each.
#include <set>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/run/step.h"

namespace belfry {

void Step::State::link_locks() {
  if (!shares()) return;
  int writer = -1;       // the last node that wrote
  std::size_t last = 0;  // its launch, or that of the last copy right behind it
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    Task& task = tasks[t];
    const PlanNode& node = plan.node(task.launch->node);
    std::set<const void*> touched;
    const auto touch = [&](int buffer) {
      if (plan.buffers[at(buffer)].place == Place::kState) touched.insert(address(buffer));
    };
    for (const Value& input : node.inputs) touch(plan.buffer(input));
    for (const int buffer : plan.buffer_of[at(task.launch->node)]) touch(buffer);
    for (const void* memory : touched) task.locks.push_back(&runner.variable_locks[memory]);
    const bool copies = node.op == &kCopy && node.inputs[0].node == writer && last + 1 == t;
    // A write and the copies of what it left are one: their variables are among those that it has.
    if (copies) tasks[last].keeps_locks = true;
    if (node.writes() > 0) writer = task.launch->node;
    if (copies || node.writes() > 0) last = t;
  }
}

// In the order of addresses, and all at once: two runs never wait for each other in a circle.
void Step::State::hold_variables(const Task& task) {
  if (holder_) return;
  for (std::mutex* lock : task.locks) lock->lock();
  holder_ = &task;
}

void Step::State::release_variables() {
  if (!holder_) return;
  for (std::mutex* lock : holder_->locks) lock->unlock();
  holder_ = nullptr;
}

}  // namespace belfry
