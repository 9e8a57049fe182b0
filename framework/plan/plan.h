// A compiled step: what the passes build, stage by stage, and a session runs.
#pragma once
#include "belfry/framework/plan/commands.h"
#include "belfry/framework/plan/memory_layout.h"

namespace belfry {

// All its stages, each made from those before it.
struct Plan : PlanGraph, ExecutionSchedule, MemoryLayout {
  Commands commands;

  // Whether a launch changes the memory of variables: it writes some, or makes there what is
  // assigned later.
  bool changes_variables(LaunchIndex launch) const;

  // The arenas, then the commands of each strand, a line for each: for people.
  std::string str(const std::vector<std::unique_ptr<Device>>& devices) const;
};

// What log_device_placement prints of a plan, in TensorFlow's form: "<name>: (<Type>): <full device
// name>" in the order of assignment, one line per output of a collective. Leaves out `known` nodes.
std::string placement_lines(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                            const std::set<const Node*>& known = {});

}  // namespace belfry
