#include "belfry/framework/passes/colocation.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "belfry/framework/base/log.h"

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
  return cat(node.name(), " (defined at ", node.site().str(), ")");
}

}  // namespace

Colocation::Colocation(const Graph& graph, const PlacementContext& context)
    : graph_(graph), context_(context), parent_(graph.size()), sets_(graph.size()) {
  for (const auto& device : context.devices) {
    type_.push_back(device->spec.is_gpu() ? kGpu : kCpu);
    present_ |= type_.back();
  }
  std::iota(parent_.begin(), parent_.end(), 0);
  for (std::size_t n = 0; n < graph.size(); ++n) add_member(static_cast<int>(n));
  join_edges();
  join_groups();
}

void Colocation::add_member(int n) {
  const Node& member = node(n);
  Set& set = sets_[at(n)];
  set.types = types_of(member.op());
  if (set.types == 0) set.refusal = without_kernel(n);
  if (const int fixed = context_.memory_of(member); fixed >= 0) {
    set.device = fixed;
    set.holder = n;
    set.assigned = set.requested = context_.device(fixed).spec;
  } else if (!member.op().collective) {
    set.requested = member.device();
    if (member.is_variable()) set.resource = set.requested;
  }
}

DeviceTypes Colocation::types_of(const Op& op) const {
  DeviceTypes types = 0;
  if (op.on_host()) types |= kCpu;
  if (!op.cpu_only) types |= kGpu;
  return types & present_;
}

int Colocation::root(int n) {
  while (parent_[at(n)] != n) n = parent_[at(n)] = parent_[at(parent_[at(n)])];
  return n;
}

std::vector<int> Colocation::members(int n) {
  std::vector<int> result;
  for (std::size_t m = 0; m < parent_.size(); ++m)
    if (root(static_cast<int>(m)) == root(n)) result.push_back(static_cast<int>(m));
  return result;
}

// What writes a variable in place is where the variable is.
void Colocation::join_edges() {
  for (std::size_t i = 0; i < graph_.size(); ++i) {
    const Node& writer = graph_.node(i);
    for (int w = 0; w < writer.op().writes; ++w) {
      const int variable = writer.input(at(w)).node().id();
      const bool apart = root(variable) != root(writer.id());
      const std::string why_not = join_edge(variable, writer.id());
      if (!why_not.empty())
        part(variable, writer.id(), why_not);
      else if (apart)
        joins_.push_back({variable, writer.id(), ""});
    }
  }
}

std::string Colocation::join_edge(int variable, int n) {
  const std::string why_not = override_request(variable, n);
  if (!why_not.empty()) return why_not;
  const std::string apart = unite(variable, n);
  if (apart.empty()) return {};
  return cat(
      "Nodes were connected by a reference connection (requiring them to be on the same device), "
      "but the two nodes were assigned two different devices: ",
      apart);
}

std::string Colocation::override_request(int producer, int consumer) {
  const Set& from = set(producer);
  Set& to = set(consumer);
  std::string why_not;
  const auto check = [&](const char* what, const DeviceSpec& a, const DeviceSpec& b) {
    if (why_not.empty() && !compatible(a, b))
      why_not = cat(
          "Cannot place the graph because a reference or resource edge connects colocation groups "
          "with incompatible ",
          what, " devices: ", a, " vs ", b, ". The edge src node is ", node(producer).name(),
          " , and the dst node is ", node(consumer).name(), of_memory(from, to));
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

void Colocation::join_groups() {
  std::unordered_map<std::string_view, int> first;  // of each group
  first.reserve(graph_.size());
  for (std::size_t i = 0; i < graph_.size(); ++i) {
    const Node& member = graph_.node(i);
    for (const std::string& group : member.colocation())
      join_group(member.id(), group, first.emplace(group, member.id()).first->second);
    join_group(member.id(), member.name(), first.emplace(member.name(), member.id()).first->second);
  }
}

void Colocation::join_group(int n, std::string_view group, int first) {
  const bool apart = root(n) != root(first);
  const std::string why_not = unite(n, first);
  if (why_not.empty()) {
    if (apart) joins_.push_back({first, n, std::string(group)});
    return;
  }
  if (!context_.allow_soft_placement) return part(first, n, why_not);
  const std::string text =
      cat("Ignoring request to colocate node '", node(n).name(),
          "' with nodes in colocation group '", group,
          "' because soft placement is on and an attempt at doing so resulted in the following "
          "error: ",
          why_not);
  if (context_.log_device_placement) log_info(text);
  set(n).fallbacks.push_back(text);
}

std::string Colocation::unite(int x, int y) {
  const int a = root(x), b = root(y);
  if (a == b) return {};
  const bool below = sets_[at(a)].rank < sets_[at(b)].rank;
  const Set &kept = sets_[at(below ? b : a)], &other = sets_[at(below ? a : b)];
  for (const Set* set : {&kept, &other})
    if (!set->refusal.empty()) return set->refusal;
  DeviceSpec assigned = kept.assigned, resource = kept.resource, requested = kept.requested;
  std::string why_not = merge(assigned, other.assigned, false);
  if (why_not.empty()) why_not = merge(resource, other.resource, false);
  if (why_not.empty()) why_not = merge(requested, other.requested, context_.allow_soft_placement);
  why_not = why_not.empty() ? missing_kernel(x, y) : cat(": ", why_not);
  if (!why_not.empty())
    return cat("Cannot colocate nodes ", colocation_text(node(x)), " and ",
               colocation_text(node(y)), why_not, of_memory(kept, other));
  Set& united = link(x, y);
  if (!compatible(united.requested, other.requested))
    united.fallbacks.push_back(cat(
        "'", node(x).name(), "' and '", node(y).name(), "' are colocated, but ask for ",
        below ? other.requested : united.requested, " and ",
        below ? united.requested : other.requested, "; soft placement leaves open what differs"));
  united.assigned = assigned;
  united.resource = resource;
  united.requested = requested.merged_with(assigned).merged_with(resource);
  return {};
}

// "" or why no device has kernels for both sets.
std::string Colocation::missing_kernel(int x, int y) {
  const Set &a = set(x), &b = set(y);
  if ((a.types & b.types) == 0)
    return cat(
        " because no device type supports both of those nodes and the other nodes colocated with "
        "them.",
        debug_info(x), debug_info(y));
  const int there = std::max(a.device, b.device);
  if (there < 0 || (a.types & b.types & type_[at(there)]) != 0) return {};
  const bool first = (a.types & type_[at(there)]) == 0;
  return cat(": ", without_kernel_on(first ? x : y, there));
}

// The set with one that holds what both say, but for the request.
Colocation::Set& Colocation::link(int x, int y) {
  const int a = root(x), b = root(y);
  const bool below = sets_[at(a)].rank < sets_[at(b)].rank;
  const int kept_root = below ? b : a, other_root = below ? a : b;
  Set &kept = sets_[at(kept_root)], &other = sets_[at(other_root)];
  kept.device = std::max(kept.device, other.device);
  kept.holder = std::max(kept.holder, other.holder);
  kept.types &= other.types;
  kept.rank += kept.rank == other.rank ? 1 : 0;
  kept.fallbacks.insert(kept.fallbacks.end(), other.fallbacks.begin(), other.fallbacks.end());
  parent_[at(other_root)] = kept_root;
  return kept;
}

// What has memory stays usable: then only the other set is refused; or the node, where both have.
void Colocation::part(int x, int n, const std::string& why_not) {
  Set &one = set(x), &other = set(n);
  if (one.holder >= 0 && other.holder >= 0)
    alone_.emplace(n, why_not);
  else if (one.holder >= 0 || other.holder >= 0)
    (one.holder >= 0 ? other : one).refusal = why_not;
  else
    link(x, n).refusal = why_not;
}

void Colocation::assign(int n, int device) {
  Set& bound = set(n);
  if (bound.decider < 0) bound.decider = n;
  if (!bound.tried) bound.tried = bound.requested;  // a variable with memory asks for no candidates
  bound.device = device;
  bound.assigned = bound.requested = bound.resource = context_.device(device).spec;
}

const std::vector<int>& Colocation::fitting(const DeviceSpec& request, DeviceTypes types) {
  const auto [found, fresh] = fitting_.try_emplace({request, types});
  if (!fresh) return found->second;
  for (DeviceTypes type = kGpu; type <= kCpu; type <<= 1)
    for (std::size_t d = 0; d < type_.size(); ++d)
      if ((type & types & type_[d]) != 0 && request.matches(context_.devices[d]->spec))
        found->second.push_back(static_cast<int>(d));
  return found->second;
}

const std::vector<int>& Colocation::candidates(int n) {
  Set& asking = set(n);
  if (asking.decider < 0) asking.tried = asking.requested;
  const std::vector<int>* found = &fitting(asking.requested, asking.types);
  if (found->empty() && context_.allow_soft_placement) found = &soften(n);
  return *found;
}

// Without the requested type and index: at first but for those of variables.
const std::vector<int>& Colocation::soften(int n) {
  Set& asking = set(n);
  const auto relaxed = [&](bool keep_variables) {
    DeviceSpec spec = asking.requested;
    if (!asking.assigned.type && !(keep_variables && asking.resource.type)) spec.type.reset();
    if (!asking.assigned.index && !(keep_variables && asking.resource.index)) spec.index.reset();
    return spec;
  };
  const std::vector<int>* found = &fitting(asking.tried.emplace(relaxed(true)), asking.types);
  if (found->empty()) {
    found = &fitting(asking.tried.emplace(relaxed(false)), asking.types);
    if (found->empty()) return *found;
  }
  asking.fallbacks.push_back(cat("no device is ", asking.requested,
                                 " and has kernels for all colocated nodes; soft placement "
                                 "dropped the type and the index"));
  return *found;
}

std::string Colocation::refusal(int n, int device) {
  const Set& asking = set(n);
  const DeviceSpec& spec = context_.device(device).spec;
  if (asking.tried && !asking.tried->matches(spec)) return cat("it is not ", *asking.tried);
  return (asking.types & type_[at(device)]) != 0 ? std::string() : without_kernel_on(n, device);
}

}  // namespace belfry
