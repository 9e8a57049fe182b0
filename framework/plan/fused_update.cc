#include "belfry/framework/plan/fused_update.h"

#include <algorithm>

#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/graph/node.h"

namespace belfry {
namespace {

// For each member, the number of its first output among the outputs of the fused node.
std::vector<std::size_t> first_outputs(const FusedUpdate& fused) {
  std::vector<std::size_t> first(fused.body.size());
  for (std::size_t i = fused.outputs.size(); i-- > 0;) first[at(fused.outputs[i].member)] = i;
  return first;
}

// The first input of the fused node that goes into `source`, an input or a sum of inputs.
std::size_t first_input(const FusedUpdate& fused, FusedUpdate::Source source) {
  while (source.member != FusedUpdate::Source::kInput)
    source = fused.body[at(source.member)].inputs[0];
  return at(source.index);
}

const FusedUpdate::Member* shard_sum_in(const FusedUpdate& fused) {
  return !fused.body.empty() && fused.body[0].op == &kSumShards ? &fused.body[0] : nullptr;
}

}  // namespace

const FusedUpdate::Member* collective_in(const FusedUpdate& fused) {
  const auto found = std::ranges::find_if(fused.body, [](const FusedUpdate::Member& member) {
    return member.op->collective != nullptr;
  });
  return found == fused.body.end() ? nullptr : &*found;
}

std::vector<FusedReader> readers_of(const FusedUpdate& fused) {
  std::vector<FusedReader> readers;
  for (const FusedUpdate::Member& member : fused.body)
    for (std::size_t i = 0; i < member.inputs.size(); ++i) {
      const FusedUpdate::Source source = member.inputs[i];
      if (source.member != FusedUpdate::Source::kInput) continue;
      if (at(source.index) >= readers.size()) readers.resize(at(source.index) + 1);
      FusedReader& reader = readers[at(source.index)];
      if (!reader.member) reader = {&member, i};
    }
  return readers;
}

std::optional<CollectivePart> collective_of(const PlanNode& node) {
  if (!node.fused_update()) {
    if (!node.op->collective) return {};
    return CollectivePart{node.node, node.inputs, node.types, node.devices};
  }
  const FusedUpdate::Member* const member = collective_in(*node.fused_update());
  if (!member) return {};
  CollectivePart part{member->node, {}, member->types, member->devices};
  for (const FusedUpdate::Source source : member->inputs)
    part.inputs.push_back(node.inputs[first_input(*node.fused_update(), source)]);
  return part;
}

std::int64_t FusedTensors::elements() const {
  std::int64_t all = 0;
  for (const Tensor& tensor : tensors) all += tensor.type.shape.elements();
  return all;
}

FusedTensors tensors_of(const FusedUpdate& fused) {
  FusedTensors made;
  made.collective = collective_in(fused);
  made.shard_sum = shard_sum_in(fused);
  if (made.shard_sum) made.shards = made.shard_sum->inputs.size();
  if (made.collective) {
    made.participants = at(made.collective->op->collective(*made.collective->node));
    for (std::size_t i = 0; i < made.collective->types.size(); i += made.participants)
      made.tensors.push_back(
          {made.collective->types[i], first_input(fused, made.collective->inputs[i]), {}});
  }
  const std::vector<std::size_t> first = first_outputs(fused);
  for (std::size_t m = 0; m < fused.body.size(); ++m) {
    const FusedUpdate::Member& member = fused.body[m];
    if (member.op->writes == 0) continue;
    const FusedUpdate::Source combined = member.inputs[at(member.op->elementwise_input)];
    const bool alone = !made.collective && (!made.shard_sum || made.tensors.empty());
    if (alone) made.tensors.push_back({member.types[0], first_input(fused, combined), {}});
    FusedTensors::Update update{&member, {}, first[m]};
    for (const FusedUpdate::Source source : member.inputs)
      update.inputs.push_back(
          source.member == FusedUpdate::Source::kInput ? source.index : FusedTensors::kCombined);
    FusedTensors::Tensor& tensor = made.collective
                                       ? made.tensors[at(combined.index) / made.participants]
                                       : made.tensors.back();
    tensor.updates.push_back(std::move(update));
  }
  return made;
}

}  // namespace belfry
