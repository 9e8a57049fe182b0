#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

std::vector<FeedType> StepNodes::zero_feeds() const {
  std::vector<FeedType> feeds;
  for (const Output& zero : zeros) {
    Shape shape = zero.shape();
    for (std::size_t i = 0; i < shape.rank(); ++i)
      if (shape[i] == kUnknownSize) shape[i] = 0;
    feeds.push_back({zero, shape});
  }
  return feeds;
}

}  // namespace belfry
