#include "belfry/framework/run/output_check.h"

#include <algorithm>
#include <utility>

namespace belfry {
namespace {

// The elements of an output that a launch computes: all, or its share of a collective.
WorkRange elements_of(const PlanNode& node, const Launch& launch, std::size_t output,
                      const TensorType& type) {
  const std::int64_t all = type.shape.elements();
  if (!node.op->collective) return {0, all};
  const std::size_t participants = at(node.participants());
  std::int64_t before = 0;  // of earlier tensors
  for (std::size_t i = 0; i < output / participants; ++i)
    before += node.types[i * participants].shape.elements();
  return {std::clamp(launch.range.begin - before, std::int64_t{0}, all),
          std::clamp(launch.range.end - before, std::int64_t{0}, all)};
}

}  // namespace

void OutputCheck::begin(std::shared_ptr<const Plan> plan,
                        const std::vector<std::unique_ptr<Device>>& devices) {
  plan_ = std::move(plan);
  devices_ = &devices;
  found_.clear();
  for (const PlanNode& node : plan_->nodes) found_.emplace_back(at(plan_->runs(node)));
}

// Packed weights have padding.
void OutputCheck::look_at(LaunchIndex launch, int shard, std::span<void* const> outputs) {
  const NodeIndex n = plan_->launches[launch].node;
  const PlanNode& node = plan_->node(n);
  if (node.packed_form()) return;
  const std::vector<TensorType> of_shard = types_of_shard(*plan_, node, shard);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(of_shard[i].dtype)) continue;
    const DType dtype = of_shard[i].dtype;
    const WorkRange made = elements_of(node, plan_->launches[launch], i, of_shard[i]);
    with_bytes_on_host(
        of_shard[i], plan_->pitch({n, static_cast<int>(i)}), outputs[i],
        *(*devices_)[at(node.devices[i])], [&](std::span<const std::byte> all) {
          const auto elements =
              all.subspan(at(made.begin) * size_of(dtype), at(made.size()) * size_of(dtype));
          auto bad = find_bad(dtype, elements);
          if (!bad) return;
          auto nan = find_nan(dtype, elements);
          bad->element += made.begin;
          if (nan) nan->element += made.begin;
          const std::lock_guard lock(finding_);
          std::vector<Found>& found = found_[n][at(shard)];
          // By output and element, whichever share of a sum looks first.
          const auto place = std::pair(static_cast<int>(i), bad->element);
          const auto later = std::ranges::find_if(found, [&](const Found& other) {
            return std::pair(other.output, other.value.element) > place;
          });
          found.insert(later, {static_cast<int>(i), std::move(*bad), std::move(nan)});
        });
  }
}

std::optional<NotFinite> OutputCheck::find_bad(DType dtype,
                                               std::span<const std::byte> elements) const {
  return limit_ ? find_beyond(limit_(dtype), dtype, elements) : find_not_finite(dtype, elements);
}

// The output of a launch, or the storage, that a value is.
Value OutputCheck::made(Value value) const {
  for (const PlanNode* node = &plan_->node(value.node); node->op->alias || node->packed_form();
       node = &plan_->node(value.node))
    value = node->inputs[0];
  return value;
}

bool OutputCheck::is_bad(Value value) const {
  return std::ranges::any_of(found_[value.node], [&](const std::vector<Found>& of_shard) {
    return std::ranges::find(of_shard, value.index, &Found::output) != of_shard.end();
  });
}

bool OutputCheck::has_nan(NodeIndex n) const {
  return std::ranges::any_of(found_[n], [](const std::vector<Found>& of_shard) {
    return std::ranges::any_of(of_shard, [](const Found& found) { return found.nan.has_value(); });
  });
}

// The launches whose values come from infinities on purpose, and are not NaN.
std::set<NodeIndex> OutputCheck::infinite_on_purpose(const std::set<NodeIndex>& reached,
                                                     const OnPurpose& on_purpose) const {
  std::set<NodeIndex> result;
  for (const NodeIndex n : reached) {
    if (has_nan(n)) continue;
    bool purpose = on_purpose(*plan_->node(n).node), fault = false;
    for (const Value& input : plan_->node(n).inputs) {
      const Value from = made(input);
      const bool intended = plan_->node(from.node).op->storage
                                ? on_purpose(*plan_->node(from.node).node)
                                : result.contains(from.node);
      purpose = purpose || intended;
      fault = fault || (!intended && is_bad(from));
    }
    if (purpose && !fault) result.insert(n);
  }
  return result;
}

std::optional<BadOutput> OutputCheck::origin_of(std::span<const Output> tensors,
                                                const OnPurpose& on_purpose) const {
  std::set<NodeIndex> reached;
  std::vector<NodeIndex> open;
  const auto reach = [&](Value value) {
    value = made(value);
    if (is_bad(value) && reached.insert(value.node).second) open.push_back(value.node);
  };
  for (const NodeIndex n : plan_->nodes.indices())
    for (int i = 0; i < std::ssize(plan_->node(n).types); ++i)
      if (plan_->node(n).op == &plan_->node(n).node->op() &&
          std::ranges::find(tensors, plan_->node(n).node->output(at(i))) != tensors.end())
        reach({n, i});
  while (!open.empty()) {
    const NodeIndex n = open.back();
    open.pop_back();
    for (const Value& input : plan_->node(n).inputs) reach(input);
  }
  if (reached.empty()) return {};
  if (!on_purpose) return describe(*reached.begin(), false);
  const std::set<NodeIndex> intended = infinite_on_purpose(reached, on_purpose);
  const auto first =
      std::ranges::find_if(reached, [&](const NodeIndex n) { return !intended.contains(n); });
  if (first == reached.end()) return describe(*reached.begin(), false);
  // Beside its NaN there may be infinities that it was given.
  return describe(*first, !intended.empty() && has_nan(*first));
}

BadOutput OutputCheck::describe(NodeIndex n, bool by_nan) const {
  const PlanNode& node = plan_->node(n);
  const auto counts = [&](const Found& found) { return !by_nan || found.nan; };
  const auto shard = static_cast<int>(
      std::ranges::find_if(found_[n],
                           [&](const auto& all) { return std::ranges::any_of(all, counts); }) -
      found_[n].begin());
  const Found& found = *std::ranges::find_if(found_[n][at(shard)], counts);
  const NotFinite& value = by_nan ? *found.nan : found.value;
  BadOutput bad{.node = node.node,
                .output = found.output,
                .device = (*devices_)[at(node.devices[at(found.output)])]->spec,
                .type = types_of_shard(*plan_, node, shard)[at(found.output)],
                .value = value};
  if (node.rows > 0 && found.output == 0) {
    const std::int64_t first =
        node.sharding.divides() ? plan_->samples(node.device(), shard).begin : 0;
    const std::int64_t row = value.element / (bad.type.shape.elements() / bad.type.shape[0]);
    bad.row = plan_->batches[at(node.device())].first + first + row / node.rows;
  }
  for (const Value& input : node.inputs) {
    const PlanNode& from = plan_->node(made(input).node);
    if (from.op->storage) bad.storage.push_back(from.node);
    bad.received = bad.received || from.op->exchange;
  }
  return bad;
}

}  // namespace belfry
