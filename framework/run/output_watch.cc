#include "belfry/framework/run/output_watch.h"

#include <cstring>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Whether a node computes what the op of a tower's node, or a fused one in its place, does.
bool computes_for_tower(const PlanNode& node) {
  const bool is_own = node.op == &node.node->op() || node.is_rematerialised();
  return is_own && node.launches() && node.node->origin().call > 0 && !node.packed_form() &&
         node.feed() < 0 && node.fetch() < 0 && !node.fused_update();
}

}  // namespace

std::vector<TensorType> types_of_shard(const Plan& plan, const PlanNode& node, int shard) {
  if (!node.sharding.divides()) return node.types;
  return plan.output_types(node, plan.samples(node.device(), shard).size());
}

void with_bytes_on_host(const TensorType& type, std::int64_t pitch, const void* memory,
                        const Device& device,
                        const std::function<void(std::span<const std::byte>)>& f) {
  const auto bytes = static_cast<std::size_t>(type.bytes());
  if (!memory) return;
  if (!device.backend) return f({static_cast<const std::byte*>(memory), bytes});
  const std::size_t row = pitch > 0 ? at(type.shape.back()) * size_of(type.dtype) : bytes;
  const std::size_t step = pitch > 0 ? at(pitch) * size_of(type.dtype) : bytes;
  const std::size_t rows = row > 0 ? bytes / row : 0;
  std::vector<std::byte> host(rows * step);
  device.backend->copy(host.data(), memory, host.size());
  for (std::size_t r = 1; r < rows; ++r)
    std::memmove(host.data() + r * row, host.data() + r * step, row);
  host.resize(bytes);
  f(host);
}

void OutputHashes::begin(std::shared_ptr<const Plan> plan,
                         const std::vector<std::unique_ptr<Device>>& devices) {
  plan_ = std::move(plan);
  devices_ = &devices;
  hashes_.clear();
  for (const PlanNode& node : plan_->nodes) hashes_.emplace_back(at(plan_->runs(node)));
}

void OutputHashes::look_at(LaunchIndex launch, int shard, std::span<void* const> outputs) {
  const NodeIndex n = plan_->launches[launch].node;
  const PlanNode& node = plan_->node(n);
  if (!computes_for_tower(node)) return;
  const std::vector<TensorType> types = types_of_shard(*plan_, node, shard);
  std::vector<std::uint64_t>& hashes = hashes_[n][at(shard)];
  hashes.assign(outputs.size(), 0);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    with_bytes_on_host(types[i], plan_->pitch({n, static_cast<int>(i)}), outputs[i],
                       *(*devices_)[at(node.devices[i])],
                       [&](std::span<const std::byte> bytes) { hashes[i] = check_hash(bytes); });
}

std::map<int, OutputHashes::Named> OutputHashes::by_tower() const {
  std::map<int, Named> towers;
  for (const NodeIndex n : plan_->nodes.indices()) {
    const PlanNode& node = plan_->node(n);
    if (!computes_for_tower(node)) continue;
    for (std::size_t i = 0; i < node.types.size(); ++i) {
      std::vector<std::uint64_t> of_shards;
      for (const std::vector<std::uint64_t>& shard : hashes_[n])
        if (i < shard.size()) of_shards.push_back(shard[i]);
      towers[node.node->origin().replica].emplace_back(
          cat(node.op->name, " '", node.node->logical_name(), "'",
              node.is_rematerialised() ? " again" : "", i > 0 ? cat(":", i) : ""),
          check_hash_of_blocks(of_shards));
    }
  }
  return towers;
}

}  // namespace belfry
