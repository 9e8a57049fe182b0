// Sets of nodes that share a device, and the devices of a session by the ops that they can run.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/placement/placement.h"

namespace belfry {

// A set of device types. The lower bit is preferred: TensorFlow gives GPUs 210 and CPUs 70.
using DeviceTypes = unsigned;
inline constexpr DeviceTypes kGpu = 1, kCpu = 2;

class TypedDevices {
 public:
  explicit TypedDevices(const PlacementContext& context);

  DeviceTypes present() const { return present_; }
  DeviceTypes type(int device) const { return type_[at(device)]; }
  // The types of devices in the session that have kernels for it.
  DeviceTypes types_of(const Op& op) const;
  // Devices that match and have one of the types, best first.
  const std::vector<int>& fitting(const DeviceSpec& request, DeviceTypes types);

 private:
  const PlacementContext& context_;
  DeviceTypes present_ = 0;
  std::vector<DeviceTypes> type_;  // of each device
  std::map<std::pair<DeviceSpec, DeviceTypes>, std::vector<int>> fitting_;
  decltype(fitting_)::const_pointer last_ = nullptr;  // most nodes ask as the previous one
};

// The state of a set.
struct ColocationSet {
  int rank = 0;                     // depth of its tree
  DeviceSpec requested;             // merged from all members; at least as narrow as the next two
  DeviceSpec resource;              // what its variables request, which nobody overrides
  DeviceSpec assigned;              // the device of a member that has one
  int device = -1;                  // the same, as a number
  int holder = -1;                  // a variable with memory there
  DeviceTypes types = 0;            // types that all members have kernels for
  int decider = -1;                 // the member whose placing fixed the device
  std::optional<DeviceSpec> tried;  // the request whose candidates were taken
  std::vector<std::string> fallbacks;  // what soft placement gave up
  std::string refusal;                 // why its members cannot be together, "" if they can
};

// A forest: nodes are numbered by their ids, and the root of a tree has the set of its nodes.
class ColocationSets {
 public:
  // A set for each of `nodes` nodes.
  explicit ColocationSets(std::size_t nodes);

  ColocationSet& of(int n) { return sets_[at(root(n))]; }
  bool together(int x, int y) { return root(x) == root(y); }
  // Whether join() keeps the set of y and gives up that of x.
  bool keeps_second(int x, int y) { return of(x).rank < of(y).rank; }
  // Merges two different sets into one. It holds what both say, except for the request.
  ColocationSet& join(int x, int y);
  // In the order of the graph.
  std::vector<int> members(int n);

 private:
  int root(int n);

  std::vector<int> parent_;
  std::vector<ColocationSet> sets_;  // by root
};

// Texts of the placer's refusals.
class ColocationTexts {
 public:
  ColocationTexts(const Graph& graph, const PlacementContext& context, TypedDevices& devices,
                  ColocationSets& sets)
      : graph_(graph), context_(context), devices_(devices), sets_(sets) {}

  // Why the node can be on no device of the session.
  std::string without_kernel(int n) const;
  // Why its set cannot be there, "" if it can.
  std::string without_kernel_on(int n, int device) const;
  // Names the variable whose memory fixes the device of one of two contradicting sets; else "".
  std::string of_memory(const ColocationSet& one, const ColocationSet& other) const;
  // TensorFlow's "Colocation Debug Info" of the node's set.
  std::string debug_info(int n) const;
  // Why the node, which nothing contradicts, has no candidates.
  std::string without_candidates(int n) const;
  // Why a variable is not where it was requested.
  std::string why_moved(int n) const;

 private:
  const Node& node(int n) const { return graph_.node(at(n)); }

  const Graph& graph_;
  const PlacementContext& context_;
  TypedDevices& devices_;
  ColocationSets& sets_;
};

}  // namespace belfry
