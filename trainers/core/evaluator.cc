#include "belfry/trainers/core/evaluator.h"

#include <iterator>

namespace belfry {

Step& prepare_predictors(Session& session, std::span<const TowerRecord> predictors,
                         std::int64_t batch) {
  std::vector<FeedType> feeds;
  std::vector<Fetch> fetches;
  for (std::int64_t first = 0; const TowerRecord& predictor : predictors) {
    add_feeds(predictor, batch, first, feeds);
    add_fetches(predictor, fetches);
    first += batch;
  }
  return session.prepare(fetches, feeds);
}

Evaluator::Evaluator(Session& session, std::span<const TowerRecord> predictors, const Dataset& data,
                     std::int64_t batch, int data_workers)
    : predictors_(predictors),
      data_(data),
      plan_(data.size(), batch),
      gatherer_(data, data_workers, "the test data") {
  const std::int64_t global = batch * std::ssize(predictors);
  if (data.size() >= global) all_ = prepare(session, predictors.size(), batch);
  if (data.size() % global >= batch) one_ = prepare(session, 1, batch);
  if (const std::int64_t left = data.size() % batch; left > 0) last_ = prepare(session, 1, left);
}

Evaluator::Shot Evaluator::prepare(Session& session, std::size_t predictors,
                                   std::int64_t batch) const {
  Shot shot{.predictors = predictors,
            .step = &prepare_predictors(session, predictors_.first(predictors), batch)};
  for (std::size_t p = 0; p < predictors; ++p)
    for (Tensor& input : batch_tensors(data_, batch)) {
      shot.memory.push_back(input.mutable_raw());
      shot.inputs.push_back(std::move(input));
    }
  return shot;
}

// Runs batches `first`, first + 1, ..., one per predictor.
void Evaluator::add(Shot& shot, std::int64_t first, std::vector<NamedValue>& sums) {
  const std::size_t fields = shot.inputs.size() / shot.predictors;
  for (std::size_t p = 0; p < shot.predictors; ++p)
    gatherer_.gather({}, plan_.rows(first + static_cast<std::int64_t>(p)),
                     std::span(shot.memory).subspan(p * fields, fields));
  shot.step->run(shot.inputs);
  const auto count = static_cast<double>(shot.inputs[0].shape()[0]);
  for (std::size_t p = 0; p < shot.predictors; ++p)
    for (std::size_t m = 0; m < sums.size(); ++m)
      sums[m].value += scalar_value(shot.step->fetched(p * sums.size() + m)) * count;
}

std::vector<NamedValue> Evaluator::run(const std::function<void(std::int64_t)>& on_samples) {
  std::vector<NamedValue> means{{"loss"}};
  for (const NamedOutput& metric : predictors_[0].metrics) means.push_back({metric.name});
  const std::int64_t batches = plan_.batches(), full = batches - (last_.step ? 1 : 0);
  std::int64_t i = 0, samples = 0;
  const auto take = [&](Shot& shot) {
    add(shot, i, means);
    const auto taken = static_cast<std::int64_t>(shot.predictors);
    i += taken;
    samples += taken * shot.inputs[0].shape()[0];
    if (on_samples) on_samples(samples);
  };
  for (const std::int64_t n = std::ssize(predictors_); i + n <= full;) take(all_);
  while (i < full) take(one_);
  if (last_.step) take(last_);
  for (NamedValue& mean : means) mean.value /= static_cast<double>(data_.size());
  return means;
}

}  // namespace belfry
