// Variables of which each process holds a part, or the newest value of a part.
#include <algorithm>
#include <cstring>
#include <set>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {
namespace {

// The first key of variables of which processes have the newest value of a part.
constexpr std::uint64_t kFirstGathered = std::uint64_t{1} << 31;

// The bytes of part `rank`.
WorkRange byte_range(const Node& variable, const Cuts& cuts, std::size_t rank) {
  const auto size = static_cast<std::int64_t>(size_of(variable.output_type(0).dtype));
  return {cuts[rank] * size, cuts[rank + 1] * size};
}

std::size_t own_rank(const Node& variable) {
  return static_cast<std::size_t>(variable.graph().process().rank);
}

}  // namespace

std::span<const std::byte> own_bytes(Variable variable, std::span<const std::byte> whole) {
  const Node& node = variable.node();
  if (!node.variable().part) return whole;
  const WorkRange own = byte_range(node, node.variable().part->cuts, own_rank(node));
  return whole.subspan(at(own.begin), at(own.size()));
}

Tensor SharedParts::whole_of(Variable variable, const Tensor& own) const {
  const Node& node = variable.node();
  require(options_.processes != nullptr, node.describe(),
          ": other processes hold parts of it, and this session knows none "
          "(SessionOptions::processes)");
  const Cuts& cuts = node.variable().part->cuts;
  Tensor whole(variable.whole_shape(), variable.dtype());
  std::memcpy(whole.mutable_raw() + byte_range(node, cuts, own_rank(node)).begin, own.raw(),
              own.bytes());
  fetch(node, cuts, whole);
  return whole;
}

void SharedParts::update(const Node& variable, const Node& gathered) const {
  const MemoryBlock& memory = variables_.memory_of(variable);
  const Cuts& cuts = gathered.options<AssignGatheredOptions>().cuts;
  Tensor whole(variable.output_type(0).shape, variable.output_type(0).dtype);
  fetch(variable, cuts, whole);
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const WorkRange part = byte_range(variable, cuts, r);
    // Others may be reading this process's own part.
    if (r != own_rank(variable))
      memory.store(whole.raw() + part.begin, at(part.begin), at(part.size()));
  }
}

void SharedParts::fetch(const Node& variable, const Cuts& cuts, Tensor& whole) const {
  const std::span<std::byte> bytes(whole.mutable_raw(), whole.bytes());
  std::vector<std::span<std::byte>> parts;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const WorkRange range = byte_range(variable, cuts, r);
    parts.push_back(bytes.subspan(at(range.begin), at(range.size())));
  }
  // Replicas are equal, and only the original is published.
  options_.processes->fetch(key_of(original_of(variable)).value(), elsewhere_.runs.load(), parts);
}

void SharedParts::keep(const Node& variable) const {
  if (elsewhere_.left_at != elsewhere_.runs.load()) return;
  const std::optional<std::uint64_t> key = key_of(variable);
  if (key && (*key & kFirstGathered) != 0) options_.processes->parts().keep(*key);
}

// All processes have the same variables in one order, even if the rest of their graphs differs.
void SharedParts::publish() {
  if (!options_.processes || options_.dry_run) return;
  std::uint64_t place = 0;
  for (const Variable variable : graph_.variables()) {
    const Node& node = variable.node();
    if (!node.variable().part) continue;
    const std::uint64_t own_place = place++;
    if (variables_.find(node)) publish(node, own_place, 0, variables_.memory_of(node).bytes());
  }
  std::set<const Node*> known;  // each variant of a training step writes the same variables
  for (const Node* const gathered : gathered_assigns(graph_)) {
    const Node& node = gathered->input(0).node();
    const std::uint64_t own_place = kFirstGathered + known.size();
    if (!known.insert(&node).second || !variables_.find(node)) continue;
    const WorkRange own =
        byte_range(node, gathered->options<AssignGatheredOptions>().cuts, own_rank(node));
    publish(node, own_place, at(own.begin), at(own.size()));
  }
}

void SharedParts::publish(const Node& variable, std::uint64_t place, std::size_t first,
                          std::size_t bytes) {
  if (variable.variable().copy_of) return;
  if (!number_) number_ = options_.processes->next_number();
  const std::uint64_t key = *number_ << 32 | place;
  options_.processes->parts().publish(
      key, {&variables_.memory_of(variable), first, bytes, &elsewhere_.runs});
  const std::lock_guard lock(keys_mutex_);
  keys_[&variable] = key;
}

std::optional<std::uint64_t> SharedParts::key_of(const Node& variable) const {
  const std::lock_guard lock(keys_mutex_);
  const auto found = keys_.find(&variable);
  if (found == keys_.end()) return {};
  return found->second;
}

bool Runtime::is_behind(std::span<const Node* const> variables) const {
  if (!elsewhere.left_by) return false;
  std::set<const void*> newer;  // replicas may share memory
  for (const auto& [variable, gathered] : elsewhere.left_by->gathered_first)
    newer.insert(variable_memory(*variable));
  return std::ranges::any_of(
      variables, [&](const Node* variable) { return newer.contains(variable_memory(*variable)); });
}

void Session::State::fetch_newer_parts() {
  if (!runtime.elsewhere.left_by) return;
  for (const auto& [variable, gathered] : runtime.elsewhere.left_by->gathered_first)
    parts.update(*variable, *gathered);
  runtime.elsewhere.left_by = nullptr;
}

SharedParts::~SharedParts() {
  for (const auto& [node, key] : keys_) try {
      options_.processes->parts().withdraw(key);
    } catch (const std::exception& error) {  // a GPU has failed, so the training has failed
      log_warning(node->describe(),
                  ": other processes cannot read its part any more: ", error.what());
    }
}

}  // namespace belfry
