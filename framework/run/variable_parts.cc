// Variables of which each process holds a part.
#include <algorithm>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {
namespace {

// Of the part of process `rank`, in the whole tensor.
WorkRange byte_range(Variable variable, std::size_t rank) {
  const std::vector<std::int64_t>& cuts = variable.node().variable().part->cuts;
  const auto size = static_cast<std::int64_t>(size_of(variable.dtype()));
  return {cuts[rank] * size, cuts[rank + 1] * size};
}

std::size_t own_rank(Variable variable) {
  return static_cast<std::size_t>(variable.node().graph().process().rank);
}

}  // namespace

std::span<const std::byte> own_bytes(Variable variable, std::span<const std::byte> whole) {
  if (!variable.node().variable().part) return whole;
  const WorkRange own = byte_range(variable, own_rank(variable));
  return whole.subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.size()));
}

Tensor SharedParts::whole_of(Variable variable, const Tensor& own) const {
  Processes* const processes = options_.processes.get();
  require(processes != nullptr, variable.node().describe(),
          ": other processes hold parts of it, and this session knows none "
          "(SessionOptions::processes)");
  Tensor whole(variable.whole_shape(), variable.dtype());
  const std::span<std::byte> bytes(whole.mutable_raw(), whole.bytes());
  std::vector<std::span<std::byte>> parts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(processes->size()); ++r) {
    const WorkRange range = byte_range(variable, r);
    parts.push_back(bytes.subspan(static_cast<std::size_t>(range.begin),
                                  static_cast<std::size_t>(range.size())));
  }
  std::ranges::copy(std::span(own.raw(), own.bytes()), parts[own_rank(variable)].begin());
  const Node* original = &variable.node();  // replicas are equal, and not published
  while (original->variable().copy_of) original = original->variable().copy_of;
  processes->fetch(keys_.at(original), parts);
  return whole;
}

// Processes have the same variables in one order, whatever else their graphs have.
void SharedParts::publish() {
  if (!options_.processes || options_.dry_run) return;
  std::uint64_t place = 0;
  for (const Variable variable : graph_.variables()) {
    const Node& node = variable.node();
    if (!node.variable().part) continue;
    const std::uint64_t own_place = place++;
    if (node.variable().copy_of || !variables_.entries().contains(&node)) continue;
    if (!number_) number_ = options_.processes->next_number();
    const std::uint64_t key = *number_ << 32 | own_place;
    options_.processes->parts().publish(key, variables_.memory_of(node));
    keys_[&node] = key;
  }
}

SharedParts::~SharedParts() {
  for (const auto& [node, key] : keys_) try {
      options_.processes->parts().withdraw(key);
    } catch (const std::exception& error) {  // a GPU has failed, and with it the training
      log_warning(node->describe(),
                  ": other processes cannot read its part any more: ", error.what());
    }
}

}  // namespace belfry
