// A compiled step. The passes build it stage by stage, and a session runs it.
#pragma once
#include "belfry/framework/plan/commands.h"
#include "belfry/framework/plan/memory_layout.h"

namespace belfry {

// All stages of a plan. Each is made from those before it.
struct Plan : PlanGraph, ExecutionSchedule, MemoryLayout {
  Commands commands;

  // Whether a launch changes the memory of variables. It may write one, or compute a value there
  // that is assigned later.
  bool changes_variables(LaunchIndex launch) const;

  // The arenas, then the commands of each strand, each on a line, for people.
  std::string str(const std::vector<std::unique_ptr<Device>>& devices) const;
};

// The lines that log_device_placement prints for a plan, in TensorFlow's form: "<name>: (<Type>):
// <full device name>" in the order of assignment, one line per output of a collective. Leaves out
// `known` nodes.
std::string placement_lines(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                            const std::set<const Node*>& known = {});

}  // namespace belfry
