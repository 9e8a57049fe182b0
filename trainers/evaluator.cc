#include "belfry/trainers/evaluator.h"

#include <algorithm>

namespace belfry {

Evaluator::Evaluator(Session& session, const TowerRecord& predictor, const Dataset& data,
                     std::int64_t batch)
    : predictor_(predictor), data_(data), plan_(data.size(), batch) {
  if (data.size() >= batch) full_ = prepare(session, batch);
  if (const std::int64_t left = data.size() % batch; left > 0) last_ = prepare(session, left);
}

Evaluator::Shot Evaluator::prepare(Session& session, std::int64_t batch) const {
  Shot shot;
  shot.inputs = batch_tensors(data_, batch);
  std::vector<FeedType> feeds;
  for (std::size_t f = 0; f < shot.inputs.size(); ++f) {
    shot.memory.push_back(shot.inputs[f].mutable_raw());
    feeds.push_back({predictor_.inputs[f], shot.inputs[f].shape()});
  }
  std::vector<Fetch> fetches{predictor_.loss};
  for (const NamedOutput& metric : predictor_.metrics) fetches.emplace_back(metric.value);
  shot.step = &session.prepare(fetches, feeds);
  return shot;
}

std::vector<NamedValue> Evaluator::run() {
  std::vector<NamedValue> means{{"loss"}};
  for (const NamedOutput& metric : predictor_.metrics) means.push_back({metric.name});
  for (std::int64_t i = 0; i < plan_.batches(); ++i) {
    const std::span<const std::int64_t> rows = plan_.rows(i);
    Shot& shot = full_.step && std::ssize(rows) == full_.inputs[0].shape()[0] ? full_ : last_;
    data_.gather(rows, shot.memory);
    shot.step->run(shot.inputs);
    for (std::size_t m = 0; m < means.size(); ++m)
      means[m].value += scalar_value(shot.step->fetched(m)) * static_cast<double>(rows.size());
  }
  for (NamedValue& mean : means) mean.value /= static_cast<double>(data_.size());
  return means;
}

}  // namespace belfry
