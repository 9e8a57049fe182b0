#include "belfry/towers/layer_links.h"

#include <utility>

#include "belfry/framework/base/require.h"

namespace belfry {

Node& LayerLinks::join(const Op& op, std::span<const Output> inputs, std::string_view what, At at,
                       NodeOptions options) {
  require<InternalError>(has_peers(), what, " (", at.site, "): tower '", name_, "' has no peers");
  contributions_.insert(contributions_.end(), inputs.begin(), inputs.end());
  return collectives_->join(index_, op, inputs, what, at, std::move(options));
}

void LayerLinks::record(BatchMoments moments) {
  if (defer_averages_) {
    nodes_.add_used(moments.mean_average);
    nodes_.add_used(moments.variance_average);
    return moments_.push_back(std::move(moments));
  }
  // Scopes of the tower and of the layer do not apply to the averages.
  const std::vector<BatchMoments> alone[] = {{std::move(moments)}};
  update_moving_averages(nodes_.graph(), alone);
}

}  // namespace belfry
