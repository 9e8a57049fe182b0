#include "belfry/trainers/training_step.h"

#include <algorithm>

namespace belfry {

TrainingStep::TrainingStep(Session& session, Node& update, std::span<const TowerRecord> towers,
                           std::span<const Output> rates, PrepareOptions options)
    : towers_(towers.size()), metrics_(1 + towers[0].metrics.size()) {
  std::vector<Fetch> fetches{update};
  std::vector<FeedType> feeds;
  for (const TowerRecord& tower : towers) {
    fetches.emplace_back(tower.loss);
    for (const NamedOutput& metric : tower.metrics) fetches.emplace_back(metric.value);
    for (const Output& input : tower.inputs) feeds.push_back({input, input.shape()});
  }
  for (const Output& rate : rates) feeds.push_back({rate, {}});
  step_ = &session.prepare(fetches, feeds, options);
  if (rates.empty()) return;
  for (const FeedType& feed : feeds) feeds_.emplace_back(feed.shape, feed.where.dtype());
}

void TrainingStep::run(std::span<const Tensor> inputs, double rate, RunOptions options) {
  if (feeds_.empty()) return step_->run(inputs, options);
  // Assignment keeps the memory of shapes, so nothing is allocated. The inputs are let go of at
  // once, since the prefetcher would have to replace tensors that are still shared.
  static const Tensor kNone;
  std::ranges::copy(inputs, feeds_.begin());
  for (std::size_t i = inputs.size(); i < feeds_.size(); ++i)
    visit_floating(feeds_[i].dtype(), [&](auto type) {
      using T = decltype(type);
      feeds_[i].mutable_data<T>()[0] = static_cast<T>(rate);
    });
  step_->run(feeds_, options);
  std::fill_n(feeds_.begin(), inputs.size(), kNone);
}

double TrainingStep::metric(std::size_t m) const {
  double sum = 0;
  // Fetch 0 is the update.
  for (std::size_t t = 0; t < towers_; ++t)
    sum += scalar_value(step_->fetched(1 + t * metrics_ + m));
  return sum / static_cast<double>(towers_);
}

}  // namespace belfry
