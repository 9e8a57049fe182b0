// The sets of nodes that must share a device, and the devices that each may have.
//
// The rules and texts are those of TensorFlow 1.15's colocation graph. Where its client shows
// {{node n}} as "node n (defined at file:line) ", so do we; {{colocation_node n}} we show as
// "n (defined at file:line)". Two differences: equal devices are ordered by number, not by name
// (GPU:2 before GPU:10), and requests cannot be malformed, as a DeviceSpec has been parsed.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/plan.h"

namespace belfry {

// A set of device types. The lower bit is preferred: TensorFlow gives GPUs 210 and CPUs 70.
using DeviceTypes = unsigned;
inline constexpr DeviceTypes kGpu = 1, kCpu = 2;

class Colocation {
 public:
  // What is known of a set.
  struct Set {
    int rank = 0;                     // depth of its tree
    DeviceSpec requested;             // merged from all members; at least as narrow as the next two
    DeviceSpec resource;              // what its variables ask for, which nobody overrides
    DeviceSpec assigned;              // the device of a member that has one
    int device = -1;                  // the same, as a number
    DeviceTypes types = 0;            // that all members have kernels for
    int decider = -1;                 // the member whose placing fixed the device
    std::optional<DeviceSpec> tried;  // the request whose candidates were taken
    std::vector<std::string> fallbacks;  // what soft placement let go
  };
  // `pulled` and all its set joined the set of `puller`; a reference edge if `group` is empty.
  struct Join {
    int puller, pulled;
    std::string group;
  };

  // Joins the nodes of the plan. Throws InvalidArgument naming both nodes where that cannot be.
  Colocation(const Plan& plan, const PlanContext& context);

  // The devices that a node may have, best first. Throws InvalidArgument when there are none.
  const std::vector<int>& candidates(int n);
  // Binds the node's set to a device.
  void assign(int n, int device);

  Set& set(int n) { return sets_[at(root(n))]; }
  // In the order of the plan.
  std::vector<int> members(int n);
  const std::vector<Join>& joins() const { return joins_; }
  DeviceTypes types_of(const Op& op) const;
  // Why a device is not among the candidates of a node, "" if it is.
  std::string refusal(int n, int device);

 private:
  void add_member(int n);
  void join_edges();
  void join_groups();
  void join_group(int n, const std::string& group, int root);
  void override_request(int producer, int consumer);
  // "" or why not.
  std::string unite(int x, int y);
  int root(int n);

  // Devices that match and have one of the types, best first.
  const std::vector<int>& fitting(const DeviceSpec& request, DeviceTypes types);
  const std::vector<int>& soften(int n);

  // colocation_errors.cc
  [[noreturn]] void refuse(int n);
  [[noreturn]] void refuse_without_kernel(int n) const;
  void warn_of_moved_variables(int n, const std::vector<int>& devices);
  std::string debug_info(int n);

  const Node& node(int n) const { return *plan_.node(n).node; }
  bool takes_part(int n) const;

  const Plan& plan_;
  const PlanContext& context_;
  DeviceTypes present_ = 0;        // types of the session's devices
  std::vector<DeviceTypes> type_;  // of each device
  std::vector<int> parent_;
  std::vector<Set> sets_;  // by root
  std::vector<Join> joins_;
  std::map<std::pair<DeviceSpec, DeviceTypes>, std::vector<int>> fitting_;
};

}  // namespace belfry
