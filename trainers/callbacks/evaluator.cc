#include "belfry/trainers/callbacks/evaluator.h"

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
                     const Options& options)
    : predictors_(predictors),
      data_(data),
      plan_(data.size(), options.global_batch, options.shards, options.towers),
      gatherer_(data, options.data_workers, "the test data"),
      types_{predictors[0].loss.dtype()} {
  for (const NamedOutput& metric : predictors[0].metrics) types_.push_back(metric.value.dtype());
  for (const EvaluationPlan::Run& run : plan_.runs())
    shots_.push_back(run.is_divided
                         ? prepare(session, predictors.size(), run.samples / options.towers)
                         : prepare(session, 1, run.samples));
}

Evaluator::Shot Evaluator::prepare(Session& session, std::size_t predictors,
                                   std::int64_t batch) const {
  Shot shot{.predictors = predictors,
            .batch = batch,
            .step = &prepare_predictors(session, predictors_.first(predictors), batch)};
  for (std::size_t p = 0; p < predictors; ++p)
    for (Tensor& input : batch_tensors(data_, batch)) {
      shot.memory.push_back(input.mutable_raw());
      shot.inputs.push_back(std::move(input));
    }
  return shot;
}

// Runs the predictors on samples from `first` on; adds what each gives to `values`, by metric.
void Evaluator::take(Shot& shot, std::int64_t first, std::vector<std::vector<double>>& values) {
  const std::size_t fields = shot.inputs.size() / shot.predictors;
  for (std::size_t p = 0; p < shot.predictors; ++p)
    gatherer_.gather({}, plan_.rows(first + static_cast<std::int64_t>(p) * shot.batch, shot.batch),
                     std::span(shot.memory).subspan(p * fields, fields));
  shot.step->run(shot.inputs);
  for (std::size_t p = 0; p < shot.predictors; ++p)
    for (std::size_t m = 0; m < values.size(); ++m)
      values[m].push_back(scalar_value(shot.step->fetched(p * values.size() + m)));
}

std::vector<NamedValue> Evaluator::run(const std::function<void(std::int64_t)>& on_samples) {
  std::vector<NamedValue> means{{"loss"}};
  for (const NamedOutput& metric : predictors_[0].metrics) means.push_back({metric.name});
  for (std::size_t r = 0; r < shots_.size(); ++r) {
    const EvaluationPlan::Run& run = plan_.runs()[r];
    const auto at_once = static_cast<std::int64_t>(shots_[r].predictors) * shots_[r].batch;
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::int64_t begin = run.first + b * run.samples, end = begin + run.samples;
      std::vector<std::vector<double>> values(means.size());
      for (std::int64_t first = begin; first < end; first += at_once) {
        take(shots_[r], first, values);
        if (on_samples) on_samples(first + at_once);
      }
      for (std::size_t m = 0; m < means.size(); ++m)
        means[m].value +=
            static_cast<double>(run.samples) *
            tower_mean(values[m].size(), types_[m], [&](std::size_t t) { return values[m][t]; });
    }
  }
  for (NamedValue& mean : means) mean.value /= static_cast<double>(plan_.samples());
  return means;
}

}  // namespace belfry
