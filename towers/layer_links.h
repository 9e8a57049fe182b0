// What the layers of a tower share with other towers: nodes over all towers, moments that move an
// average once, and sums that an evaluation divides.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/towers/metric.h"
#include "belfry/towers/moving_average.h"
#include "belfry/towers/tower_collectives.h"
#include "belfry/towers/tower_nodes.h"

namespace belfry {

class LayerLinks {
 public:
  // `nodes`, `index` and `name` are the tower's. `collectives`: what it builds with its peers; null
  // if it has none.
  LayerLinks(TowerNodes& nodes, int index, std::string name, TowerCollectives* collectives)
      : nodes_(nodes), index_(index), name_(std::move(name)), collectives_(collectives) {}

  // Moments move averages at the end of replicate(), or at once in a tower built alone.
  void record(BatchMoments moments);
  const std::vector<BatchMoments>& moments() const { return moments_; }
  // Keeps moments for replicate(), which moves the averages once for all towers.
  void defer_averages() { defer_averages_ = true; }

  // What evaluations divide instead of taking the mean of a mean.
  void record(WeightedSums sums) { weighted_.push_back(sums); }
  const std::vector<WeightedSums>& weighted() const { return weighted_; }

  // The node over all training towers (tower_collectives.h), to which this tower contributes
  // `inputs`. The tower must have peers.
  Node& join(const Op& op, std::span<const Output> inputs, std::string_view what, At at,
             NodeOptions options = {});
  bool has_peers() const { return collectives_ != nullptr; }
  // The inputs that the tower contributed to join(), in their order.
  const std::vector<Output>& contributions() const { return contributions_; }

 private:
  TowerNodes& nodes_;
  int index_;
  std::string name_;
  TowerCollectives* collectives_;
  std::vector<BatchMoments> moments_;
  std::vector<WeightedSums> weighted_;
  std::vector<Output> contributions_;
  bool defer_averages_ = false;
};

}  // namespace belfry
