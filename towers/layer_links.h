// What layers of a tower share with those of other towers: nodes over all of them, and moments
// whose averages move once.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/towers/moving_average.h"
#include "belfry/towers/tower_collectives.h"
#include "belfry/towers/tower_nodes.h"

namespace belfry {

class LayerLinks {
 public:
  // Of the tower whose nodes these are, number `index`, called `name`. It has peers if it builds
  // `collectives` with others; null if not.
  LayerLinks(TowerNodes& nodes, int index, std::string name, TowerCollectives* collectives)
      : nodes_(nodes), index_(index), name_(std::move(name)), collectives_(collectives) {}

  // Moments that move averages: at the end of replicate(), or at once in a tower of its own.
  void record(BatchMoments moments);
  const std::vector<BatchMoments>& moments() const { return moments_; }
  // Keeps moments for whoever builds all towers.
  void defer_averages() { defer_averages_ = true; }

  // A node over all training towers (tower_collectives.h), which gets `inputs` from this one. Only
  // in one of several.
  Node& join(const Op& op, std::span<const Output> inputs, std::string_view what, At at,
             NodeOptions options = {});
  bool has_peers() const { return collectives_ != nullptr; }
  // The inputs that it gave, in their order.
  const std::vector<Output>& contributions() const { return contributions_; }

 private:
  TowerNodes& nodes_;
  int index_;
  std::string name_;
  TowerCollectives* collectives_;
  std::vector<BatchMoments> moments_;
  std::vector<Output> contributions_;
  bool defer_averages_ = false;
};

}  // namespace belfry
