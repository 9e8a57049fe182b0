// Joins the nodes that must share a device. A node that writes is where its variable has memory.
// Nodes of a colocation group are together, because their user wants it. A join merges the requests
// of both sets. All joins come before any node gets a device, so that the order of nodes decides
// nothing.
#include <algorithm>
#include <string_view>
#include <vector>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/placement/colocation.h"

namespace belfry {
namespace {

template <class Field>
bool differ(const Field& a, const Field& b) {
  return a && b && *a != *b;
}

bool compatible(const DeviceSpec& a, const DeviceSpec& b) {
  return !differ(a.job, b.job) && !differ(a.replica, b.replica) && !differ(a.task, b.task) &&
         !differ(a.type, b.type) && !differ(a.index, b.index);
}

template <class Field>
void take(Field& target, const Field& other) {
  if (other) target = other;
}

// Adds the fields of `other` to `target`; "" or why it cannot. With `soft`, types that differ are
// cleared with the index, and indices that differ are cleared.
std::string merge(DeviceSpec& target, const DeviceSpec& other, bool soft) {
  const auto incompatible = [&](const char* what) {
    return cat("Cannot merge devices with incompatible ", what, ": '", target, "' and '", other,
               "'");
  };
  if (differ(target.job, other.job)) return incompatible("jobs");
  take(target.job, other.job);
  if (differ(target.replica, other.replica)) return incompatible("replicas");
  take(target.replica, other.replica);
  if (differ(target.task, other.task)) return incompatible("tasks");
  take(target.task, other.task);
  const bool types_differ = differ(target.type, other.type);
  if (types_differ && !soft) return incompatible("types");
  if (types_differ) {
    target.type.reset();
    target.index.reset();
    return {};
  }
  take(target.type, other.type);
  const bool indices_differ = differ(target.index, other.index);
  if (indices_differ && !soft) return incompatible("ids");
  take(target.index, other.index);
  if (indices_differ) target.index.reset();
  return {};
}

// {{colocation_node n}}.
std::string colocation_text(const Node& node) {
  return cat(node.name(), " (defined at ", node.origin().site, ")");
}

class Joiner {
 public:
  Joiner(const Graph& graph, const PlacementContext& context, TypedDevices& devices,
         ColocationSets& sets)
      : graph_(graph), context_(context), devices_(devices), sets_(sets) {}

  ColocationJoins run() {
    for (std::size_t n = 0; n < graph_.size(); ++n) add_member(static_cast<int>(n));
    join_edges();
    join_groups();
    return std::move(made_);
  }

 private:
  void add_member(int n) {
    const Node& member = node(n);
    ColocationSet& set = sets_.of(n);
    set.types = devices_.types_of(member.op());
    if (set.types == 0) set.refusal = texts_.without_kernel(n);
    if (const int fixed = context_.memory_of(member); fixed >= 0) {
      set.device = fixed;
      set.holder = n;
      set.assigned = set.requested = context_.device(fixed).spec;
    } else if (!member.op().collective) {
      set.requested = member.device();
      if (member.is_variable()) set.resource = set.requested;
    }
  }

  // A node that writes a variable in place is where the variable is.
  void join_edges() {
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      const Node& writer = graph_.node(i);
      for (int w = 0; w < writer.op().writes; ++w) {
        const int variable = writer.input(at(w)).node().id();
        const bool apart = !sets_.together(variable, writer.id());
        const std::string why_not = join_edge(variable, writer.id());
        if (!why_not.empty())
          refuse(variable, writer.id(), why_not);
        else if (apart)
          made_.joins.push_back({variable, writer.id(), ""});
      }
    }
  }

  std::string join_edge(int variable, int n) {
    const std::string why_not = override_request(variable, n);
    if (!why_not.empty()) return why_not;
    const std::string apart = unite(variable, n);
    if (apart.empty()) return {};
    return cat(
        "Nodes were connected by a reference connection (requiring them to be on the same device), "
        "but the two nodes were assigned two different devices: ",
        apart);
  }

  std::string override_request(int producer, int consumer) {
    const ColocationSet& from = sets_.of(producer);
    ColocationSet& to = sets_.of(consumer);
    std::string why_not;
    const auto check = [&](const char* what, const DeviceSpec& a, const DeviceSpec& b) {
      if (why_not.empty() && !compatible(a, b))
        why_not =
            cat("Cannot place the graph because a reference or resource edge connects colocation "
                "groups with incompatible ",
                what, " devices: ", a, " vs ", b, ". The edge src node is ", node(producer).name(),
                " , and the dst node is ", node(consumer).name(), texts_.of_memory(from, to));
    };
    check("assigned", from.assigned, to.assigned);
    check("resource", from.resource, to.resource);
    if (!why_not.empty() || compatible(from.requested, to.requested)) return why_not;
    const std::string text =
        cat("Ignoring device specification ", to.requested, " for node '", node(consumer).name(),
            "' because the input edge from '", node(producer).name(),
            "' is a reference connection and already has a device field set to ", from.requested);
    if (context_.log_device_placement) log_info(text);
    to.fallbacks.push_back(text);
    to.requested = from.requested.merged_with(to.assigned).merged_with(to.resource);
    return {};
  }

  // A group is named after a node, which is a member, too.
  void join_groups() {
    constexpr int kNoGroup = -2, kNobody = -1;
    std::vector<int> first(graph_.size(), kNoGroup);  // member of the group named after each node
    for (std::size_t i = 0; i < graph_.size(); ++i)
      for (const Node* anchor : graph_.node(i).request().colocation)
        first[at(anchor->id())] = kNobody;
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      const Node& member = graph_.node(i);
      const auto join = [&](const Node& anchor) {
        int& of_group = first[at(anchor.id())];
        if (of_group == kNobody) of_group = member.id();
        join_group(member.id(), anchor.name(), of_group);
      };
      for (const Node* anchor : member.request().colocation) join(*anchor);
      if (first[i] != kNoGroup) join(member);
    }
  }

  void join_group(int n, std::string_view group, int first) {
    const bool apart = !sets_.together(n, first);
    const std::string why_not = unite(n, first);
    if (why_not.empty()) {
      if (apart) made_.joins.push_back({first, n, group});
      return;
    }
    if (!context_.allow_soft_placement) return refuse(first, n, why_not);
    const std::string text =
        cat("Ignoring request to colocate node '", node(n).name(),
            "' with nodes in colocation group '", group,
            "' because soft placement is on and an attempt at doing so resulted in the following "
            "error: ",
            why_not);
    if (context_.log_device_placement) log_info(text);
    sets_.of(n).fallbacks.push_back(text);
  }

  std::string unite(int x, int y) {
    if (sets_.together(x, y)) return {};
    const bool second = sets_.keeps_second(x, y);
    const ColocationSet &kept = sets_.of(second ? y : x), &other = sets_.of(second ? x : y);
    for (const ColocationSet* set : {&kept, &other})
      if (!set->refusal.empty()) return set->refusal;
    DeviceSpec assigned = kept.assigned, resource = kept.resource, requested = kept.requested;
    std::string why_not = merge(assigned, other.assigned, false);
    if (why_not.empty()) why_not = merge(resource, other.resource, false);
    if (why_not.empty()) why_not = merge(requested, other.requested, context_.allow_soft_placement);
    why_not = why_not.empty() ? missing_kernel(x, y) : cat(": ", why_not);
    if (!why_not.empty())
      return cat("Cannot colocate nodes ", colocation_text(node(x)), " and ",
                 colocation_text(node(y)), why_not, texts_.of_memory(kept, other));
    ColocationSet& united = sets_.join(x, y);
    if (!compatible(united.requested, other.requested))
      united.fallbacks.push_back(cat("'", node(x).name(), "' and '", node(y).name(),
                                     "' are colocated, but ask for ",
                                     second ? other.requested : united.requested, " and ",
                                     second ? united.requested : other.requested,
                                     "; soft placement leaves open what differs"));
    united.assigned = assigned;
    united.resource = resource;
    united.requested = requested.merged_with(assigned).merged_with(resource);
    return {};
  }

  // "" or why no device has kernels for both sets.
  std::string missing_kernel(int x, int y) {
    const ColocationSet &a = sets_.of(x), &b = sets_.of(y);
    if ((a.types & b.types) == 0)
      return cat(
          " because no device type supports both of those nodes and the other nodes colocated with "
          "them.",
          texts_.debug_info(x), texts_.debug_info(y));
    const int there = std::max(a.device, b.device);
    if (there < 0 || (a.types & b.types & devices_.type(there)) != 0) return {};
    const bool first = (a.types & devices_.type(there)) == 0;
    return cat(": ", texts_.without_kernel_on(first ? x : y, there));
  }

  // A set with memory stays usable: only the other set is refused. If both have memory, the node
  // is.
  void refuse(int x, int n, const std::string& why_not) {
    ColocationSet &one = sets_.of(x), &other = sets_.of(n);
    if (one.holder >= 0 && other.holder >= 0)
      made_.alone.emplace(n, why_not);
    else if (one.holder >= 0 || other.holder >= 0)
      (one.holder >= 0 ? other : one).refusal = why_not;
    else
      sets_.join(x, n).refusal = why_not;
  }

  const Node& node(int n) const { return graph_.node(at(n)); }

  const Graph& graph_;
  const PlacementContext& context_;
  TypedDevices& devices_;
  ColocationSets& sets_;
  const ColocationTexts texts_{graph_, context_, devices_, sets_};
  ColocationJoins made_;
};

}  // namespace

ColocationJoins join_nodes(const Graph& graph, const PlacementContext& context,
                           TypedDevices& devices, ColocationSets& sets) {
  return Joiner(graph, context, devices, sets).run();
}

}  // namespace belfry
