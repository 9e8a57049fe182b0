// The sets of nodes that must share a device, and the devices that each may have: from the whole
// graph, so that they are the same whatever is run, in whatever order.
//
// The rules and texts are those of TensorFlow 1.15's colocation graph. Where its client shows
// {{node n}} as "node n (defined at file:line) ", so do we; {{colocation_node n}} we show as
// "n (defined at file:line)". Three differences: equal devices are ordered by number, not by name
// (GPU:2 before GPU:10); requests cannot be malformed, as a DeviceSpec has been parsed; and a
// contradiction is an error of the nodes that it concerns, where TensorFlow refuses every run. What
// contradicts a variable that has memory, in a graph that has grown, is refused without it. Under
// soft placement two sets without a common kernel stay apart, each with its own request, where
// TensorFlow leaves the merged request with one of them.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/passes/placement.h"

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
    int holder = -1;                  // a variable that has memory there
    DeviceTypes types = 0;            // that all members have kernels for
    int decider = -1;                 // the member whose placing fixed the device
    std::optional<DeviceSpec> tried;  // the request whose candidates were taken
    std::vector<std::string> fallbacks;  // what soft placement let go
    std::string refusal;                 // why its members cannot be together, "" if they can
  };
  // `pulled` and all its set joined the set of `puller`; a reference edge if `group` is empty.
  struct Join {
    int puller, pulled;
    std::string group;
  };

  // Joins the nodes of the graph, which are numbered by their ids.
  Colocation(const Graph& graph, const PlacementContext& context);

  // The devices that a node may have, best first; none if it cannot be placed.
  const std::vector<int>& candidates(int n);
  // Binds the node's set to a device.
  void assign(int n, int device);
  // The node contradicts another one, or has no kernel.
  bool refused(int n) { return alone_.contains(n) || !set(n).refusal.empty(); }
  // Throws InvalidArgument saying why a node is refused or has no candidates.
  [[noreturn]] void refuse(int n);

  Set& set(int n) { return sets_[at(root(n))]; }
  // In the order of the graph.
  std::vector<int> members(int n);
  const std::vector<Join>& joins() const { return joins_; }
  DeviceTypes types_of(const Op& op) const;
  // Why a device is not among the candidates of a node, "" if it is.
  std::string refusal(int n, int device);
  // Why a variable is not where it asked to be.
  std::string why_moved(int n);

 private:
  void add_member(int n);
  void join_edges();
  std::string join_edge(int variable, int n);
  void join_groups();
  void join_group(int n, std::string_view group, int first);
  // Each "" or why not.
  std::string override_request(int producer, int consumer);
  std::string unite(int x, int y);
  std::string missing_kernel(int x, int y);
  void part(int x, int n, const std::string& why_not);
  Set& link(int x, int y);
  int root(int n);

  // Devices that match and have one of the types, best first.
  const std::vector<int>& fitting(const DeviceSpec& request, DeviceTypes types);
  const std::vector<int>& soften(int n);

  // colocation_errors.cc
  std::string without_kernel(int n) const;
  std::string without_kernel_on(int n, int device);
  std::string of_memory(const Set& one, const Set& other) const;
  std::string debug_info(int n);

  const Node& node(int n) const { return graph_.node(at(n)); }

  const Graph& graph_;
  const PlacementContext& context_;
  DeviceTypes present_ = 0;        // types of the session's devices
  std::vector<DeviceTypes> type_;  // of each device
  std::vector<int> parent_;
  std::vector<Set> sets_;             // by root
  std::map<int, std::string> alone_;  // nodes that are refused without their sets, and why
  std::vector<Join> joins_;
  std::map<std::pair<DeviceSpec, DeviceTypes>, std::vector<int>> fitting_;
};

}  // namespace belfry
