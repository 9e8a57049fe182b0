#include "belfry/trainers/callbacks/evaluator.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "belfry/framework/base/profiler_range.h"
#include "belfry/trainers/data/not_finite_input.h"

namespace belfry {

CompiledStep& prepare_predictors(Session& session, std::span<const TowerRecord> predictors,
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

namespace {

std::int64_t samples_of(const Dataset& data, const Evaluator::Options& options) {
  const std::int64_t all = data.size();
  return options.batches == 0 || options.batches > all / options.global_batch
             ? all
             : options.batches * options.global_batch;
}

}  // namespace

Evaluator::Evaluator(Session& session, std::span<const TowerRecord> predictors, const Dataset& data,
                     const Options& options)
    : session_(session),
      predictors_(predictors),
      data_(data),
      batches_(samples_of(data, options), options.global_batch, options.shards, options.towers),
      gatherer_(data, options.data_workers, "the test data", options.global_batch),
      processes_(options.processes),
      place_(processes_ ? processes_->place() : ProcessPlace()),
      totals_(MetricNumbers(predictors[0])) {
  for (const EvaluationPlan::Run& run : batches_.runs())
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

// Runs the predictors on samples from `first` on, and adds their results to `values`.
void Evaluator::take(Shot& shot, std::int64_t first, Values& values) {
  const std::size_t fields = shot.inputs.size() / shot.predictors;
  for (std::size_t p = 0; p < shot.predictors; ++p)
    gatherer_.gather({},
                     batches_.rows(first + static_cast<std::int64_t>(p) * shot.batch, shot.batch),
                     std::span(shot.memory).subspan(p * fields, fields));
  // Random numbers of samples go by the number of the first one (RandomNormalOptions::fixed).
  const std::uint64_t step = session_.step();
  session_.set_step(static_cast<std::uint64_t>(first));
  shot.step->run(shot.inputs);
  session_.set_step(step);
  std::size_t fetch = 0;
  for (std::size_t p = 0; p < shot.predictors; ++p) {
    bool of_loss = true;
    std::size_t table = 0;
    for (const MetricNumbers::Part& part : totals_.numbers().parts()) {
      of_loss = of_loss && (part.first == 0 || part.is_term());
      const Tensor& fetched = shot.step->fetched(fetch++);
      if (part.has_scores()) totals_.scores()[table++].add(fetched.data<double>());
      for (std::size_t i = 0; i < part.count; ++i) {
        values.push_back(number_in(fetched, i));
        if (of_loss && !std::isfinite(values.back())) look_at_input(shot, first);
      }
    }
  }
}

void Evaluator::look_at_input(const Shot& shot, std::int64_t first) {
  const std::size_t fields = shot.inputs.size() / shot.predictors;
  for (std::size_t p = 0; p < shot.predictors && input_.empty(); ++p)
    input_ = belfry::not_finite_input(
        data_, std::span(shot.inputs).subspan(p * fields, fields),
        batches_.rows(first + static_cast<std::int64_t>(p) * shot.batch, shot.batch), "test");
}

// Processes take turns at blocks that are not divided.
bool Evaluator::takes(std::size_t process, const EvaluationPlan::Run& run,
                      std::int64_t block) const {
  return run.is_divided || block % place_.size == static_cast<std::int64_t>(process);
}

// The values of all processes, by rank.
std::vector<Evaluator::Values> Evaluator::of_all(const Values& own) const {
  if (place_.size == 1) return {own};
  std::vector<Values> all;
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double));
  for (const std::string& some : processes_->gather(bytes)) {
    Values& values = all.emplace_back(some.size() / sizeof(double));
    std::memcpy(values.data(), some.data(), some.size());
  }
  return all;
}

// Adds these blocks to the totals, where `own` are the values of this process. Empties both.
void Evaluator::add(std::vector<Block>& blocks, Values& own) {
  if (blocks.empty()) return;
  const std::vector<Values> all = of_all(own);
  const std::size_t count = totals_.numbers().count();
  std::vector<std::size_t> taken(all.size());  // of each process's values
  for (const auto& [r, b] : blocks) {
    const EvaluationPlan::Run& run = batches_.runs()[r];
    Values block;  // values of all predictors, in their order
    for (std::size_t p = 0; p < all.size(); ++p) {
      if (!takes(p, run, b)) continue;
      const auto from = all[p].begin() + static_cast<std::ptrdiff_t>(taken[p]);
      const std::size_t some = shots_[r].predictors * count;
      block.insert(block.end(), from, from + static_cast<std::ptrdiff_t>(some));
      taken[p] += some;
    }
    totals_.add(static_cast<double>(run.samples), [&](std::span<double> numbers) {
      for (const MetricNumbers::Part& part : totals_.numbers().parts())
        for (std::size_t i = part.first; i < part.first + part.count; ++i)
          numbers[i] = part.combine(block.size() / count,
                                    [&](std::size_t t) { return block[t * count + i]; });
    });
  }
  blocks.clear();
  own.clear();
}

// Processes exchange the values of several blocks at once.
std::vector<NamedValue> Evaluator::run(const std::function<bool(std::int64_t)>& on_samples) {
  static const RangeName kEvaluation("evaluation");
  const ProfilerRange range(kEvaluation);
  constexpr std::size_t kMostNumbers = std::size_t{1} << 17;
  input_.clear();
  totals_.clear();
  std::vector<Block> blocks;
  Values own;
  const std::size_t numbers = predictors_.size() * totals_.numbers().count();
  for (std::size_t r = 0; r < shots_.size(); ++r) {
    const EvaluationPlan::Run& run = batches_.runs()[r];
    const std::int64_t before = run.is_divided ? run.samples / place_.size * place_.rank : 0;
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::int64_t begin = run.first + b * run.samples;
      if (takes(static_cast<std::size_t>(place_.rank), run, b))
        take(shots_[r], begin + before, own);
      if (on_samples && !on_samples(begin + run.samples)) return {};
      blocks.push_back({r, b});
      if (place_.size == 1 || blocks.size() * numbers >= kMostNumbers) add(blocks, own);
    }
  }
  add(blocks, own);
  totals_.gather_scores(processes_);
  std::vector<NamedValue> values = no_values(totals_.numbers());
  totals_.finish(values);
  return values;
}

}  // namespace belfry
