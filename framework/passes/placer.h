// The placer: a device for every output of a plan, by the rules of TensorFlow 1.15.
//
// Nodes with inputs go first, in the order of the graph, each to the first candidate of its
// colocation set; metadata ops (Op::metadata) to the device of their input, if it is a candidate.
// Generators (no inputs, one output, not a variable) follow: where all their consumers are, if they
// agree, else to the first candidate. A variable that has memory stays where it is.
//
// What TensorFlow does not have: a collective has no device of its own. Its outputs are where its
// inputs are, its request is ignored, and what is colocated with it goes where its first output
// is, if it can. A fetch is copied where its value is. TensorFlow places the whole graph; we place
// what the fetches need, so consumers that a plan leaves out move no generator.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/framework/passes/colocation.h"

namespace belfry {

class Placer {
 public:
  Placer(Plan& plan, const PlanContext& context)
      : plan_(plan), context_(context), colocation_(plan, context), reasons_(plan.nodes.size()) {}

  // Sets the devices and assignments of the plan. Throws InvalidArgument.
  void run();

  Colocation& colocation() { return colocation_; }
  // Why node n has its device: "the first candidate", ...
  std::string_view reason(int n) const { return reasons_[at(n)]; }

 private:
  bool waits(int n) const;
  void settle(int n);
  int beside_input(int n, const std::vector<int>& candidates);
  int beside_consumers(int n, const std::vector<int>& candidates);
  int known_device(Value value) const;
  void assign(int n, int device, std::string_view reason);
  void assign_collective(int n);

  Plan& plan_;
  const PlanContext& context_;
  Colocation colocation_;
  std::vector<std::vector<int>> consumers_;
  std::vector<std::string_view> reasons_;
};

}  // namespace belfry
