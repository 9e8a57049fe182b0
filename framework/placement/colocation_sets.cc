#include "belfry/framework/placement/colocation_sets.h"

#include <algorithm>
#include <numeric>

namespace belfry {

TypedDevices::TypedDevices(const PlacementContext& context) : context_(context) {
  for (const auto& device : context.devices) {
    type_.push_back(device->spec.is_gpu() ? kGpu : kCpu);
    present_ |= type_.back();
  }
}

DeviceTypes TypedDevices::types_of(const Op& op) const {
  DeviceTypes types = 0;
  if (op.on_host()) types |= kCpu;
  if (!op.cpu_only) types |= kGpu;
  return types & present_;
}

const std::vector<int>& TypedDevices::fitting(const DeviceSpec& request, DeviceTypes types) {
  if (last_ && last_->first.first == request && last_->first.second == types) return last_->second;
  const auto [found, fresh] = fitting_.try_emplace({request, types});
  last_ = &*found;
  if (!fresh) return found->second;
  for (DeviceTypes type = kGpu; type <= kCpu; type <<= 1)
    for (std::size_t d = 0; d < type_.size(); ++d)
      if ((type & types & type_[d]) != 0 && request.matches(context_.devices[d]->spec))
        found->second.push_back(static_cast<int>(d));
  return found->second;
}

ColocationSets::ColocationSets(std::size_t nodes) : parent_(nodes), sets_(nodes) {
  std::iota(parent_.begin(), parent_.end(), 0);
}

int ColocationSets::root(int n) {
  while (parent_[at(n)] != n) n = parent_[at(n)] = parent_[at(parent_[at(n)])];
  return n;
}

std::vector<int> ColocationSets::members(int n) {
  std::vector<int> result;
  for (std::size_t m = 0; m < parent_.size(); ++m)
    if (root(static_cast<int>(m)) == root(n)) result.push_back(static_cast<int>(m));
  return result;
}

ColocationSet& ColocationSets::join(int x, int y) {
  const bool second = keeps_second(x, y);
  const int kept_root = root(second ? y : x), other_root = root(second ? x : y);
  ColocationSet &kept = sets_[at(kept_root)], &other = sets_[at(other_root)];
  kept.device = std::max(kept.device, other.device);
  kept.holder = std::max(kept.holder, other.holder);
  kept.types &= other.types;
  kept.rank += kept.rank == other.rank ? 1 : 0;
  kept.fallbacks.insert(kept.fallbacks.end(), other.fallbacks.begin(), other.fallbacks.end());
  parent_[at(other_root)] = kept_root;
  return kept;
}

}  // namespace belfry
