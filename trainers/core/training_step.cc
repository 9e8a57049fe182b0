#include "belfry/trainers/core/training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace {

// The inputs are the first feeds while it lives. Assignment keeps the memory of shapes, so nothing
// is allocated. They are let go of at once, since the prefetcher would have to replace tensors that
// are still shared.
class InputsInFront {
 public:
  InputsInFront(std::vector<Tensor>& feeds, std::span<const Tensor> inputs)
      : held_(std::span(feeds).first(inputs.size())) {
    std::ranges::copy(inputs, held_.begin());
  }
  ~InputsInFront() {
    static const Tensor kNone;
    std::ranges::fill(held_, kNone);
  }
  InputsInFront(const InputsInFront&) = delete;
  InputsInFront& operator=(const InputsInFront&) = delete;

 private:
  std::span<Tensor> held_;
};

constexpr int kComparisonRequest = 256, kStopRequest = 512;  // above all signals

// A number for the request, and the halves of the hash, which f64 holds.
constexpr int kHalf = 32;

void write_request(StepRequest request, std::span<double> numbers) {
  numbers[0] = request.signal + (request.comparison ? kComparisonRequest : 0) +
               (request.stop ? kStopRequest : 0);
  numbers[1] = static_cast<double>(request.hash >> kHalf);
  numbers[2] = static_cast<double>(static_cast<std::uint32_t>(request.hash));
}

std::uint64_t hash_of_request(std::span<const double> numbers) {
  return static_cast<std::uint64_t>(numbers[1]) << kHalf | static_cast<std::uint64_t>(numbers[2]);
}

}  // namespace

double number_in(const Tensor& tensor, std::size_t i) {
  return visit_floating(tensor.dtype(), [&](auto type) {
    return static_cast<double>(tensor.data<decltype(type)>()[i]);
  });
}

void add_feeds(const TowerRecord& tower, std::int64_t rows, std::optional<std::int64_t> first,
               std::vector<FeedType>& feeds) {
  for (const Output& input : tower.inputs) {
    feeds.push_back({input, input.shape(), first});
    feeds.back().shape[0] = rows;
  }
}

void add_fetches(const TowerRecord& tower, std::vector<Fetch>& fetches) {
  if (tower.evaluated.empty()) {
    fetches.emplace_back(tower.loss);
    for (const TowerMetric& metric : tower.metrics) fetches.emplace_back(metric.value);
  }
  for (const EvaluatedMean& mean : tower.evaluated) {
    fetches.emplace_back(mean.rest);
    for (const EvaluatedMean::Term& term : mean.terms) fetches.emplace_back(term.sums);
  }
}

TrainingStep::TrainingStep(Session& session, const StepNodes& nodes,
                           std::span<const TowerRecord> towers, std::span<const Output> rates,
                           PrepareOptions options, bool keeps_gradients,
                           std::span<const NamedOutput> watched, bool keeps_contributions)
    : numbers_(towers[0]),
      rates_(rates.size()),
      equal_(nodes.all.equal()),
      samples_(nodes.all.samples.begin(), nodes.all.samples.end()),
      per_process_(towers.size() * numbers_.count() + kNumbersOfRequest) {
  std::vector<Fetch> fetches{*nodes.train_op};
  std::vector<FeedType> feeds;
  for (std::size_t t = 0; t < towers.size(); ++t) {
    // Rows that do not count have shards, too: all processes send their messages in one order.
    add_feeds(towers[t], nodes.batch.rows[t], nodes.batch.begins[t], feeds);
    losses_.push_back(fetches.size());
    if (nodes.batch.samples[t] > 0) scored_.push_back(fetches.size());
    if (nodes.runs(t)) add_fetches(towers[t], fetches);
  }
  if (nodes.of_all_towers) {
    of_all_ = fetches.size();
    fetches.emplace_back(nodes.of_all_towers);
  }
  if (nodes.unscaling.applied) {
    applied_ = fetches.size();
    fetches.emplace_back(nodes.unscaling.applied);
  }
  const std::size_t inputs = feeds.size();
  for (const Output& rate : rates) feeds.push_back({rate, {}});
  if (nodes.request) feeds.push_back({nodes.request, nodes.request.shape()});
  for (const FeedType& zero : nodes.zero_feeds()) feeds.push_back(zero);
  if (keeps_gradients)
    for (const Gradient& gradient : nodes.gradients) {
      if (!gradient.value) continue;
      gradients_.emplace_back(gradient.variable.logical_name(), fetches.size());
      fetches.emplace_back(gradient.value);
    }
  norms_ = nodes.squares.variables;
  squares_ = fetches.size();
  for (const Output& sums : nodes.squares.sums) fetches.emplace_back(sums);
  squares_end_ = fetches.size();
  has_factor_ = !norms_.empty() && nodes.unscaling.factor;
  if (has_factor_) fetches.emplace_back(nodes.unscaling.factor);
  for (const NamedOutput& tensor : watched) {
    watched_.emplace_back(tensor.name, fetches.size());
    fetches.emplace_back(tensor.value);
  }
  if (keeps_contributions) {
    const GradientRows& rows = nodes.tower_gradients;
    contributions_.resize(rows.size());
    for (std::size_t t = 0; t < rows.size(); ++t)
      for (const Gradient& gradient : rows[t]) {
        if (!gradient.value || (rows.size() > 1 && !nodes.runs(t))) continue;
        contributions_[t].emplace_back(gradient.variable.logical_name(), fetches.size());
        fetches.emplace_back(gradient.value);
      }
  }
  step_ = &session.prepare(fetches, feeds, options);
  stages_ = !step_->plan()->feed_slots.empty();
  if (feeds.size() == inputs) return;
  const auto tensors = [&](std::vector<Tensor>& all) {
    for (const FeedType& feed : feeds) all.emplace_back(feed.shape, feed.where.dtype());
  };
  tensors(feeds_);
  if (stages_) tensors(next_feeds_);
}

// Rates are fed to CPUs: they are not known yet.
StagedFeeds TrainingStep::stage(std::span<const Tensor> inputs, std::stop_token stop) {
  if (!stages_) return {};
  if (next_feeds_.empty()) return step_->stage(inputs, std::move(stop));
  const InputsInFront held(next_feeds_, inputs);
  return step_->stage(next_feeds_, std::move(stop));
}

void TrainingStep::run(StagedFeeds staged, std::span<const Tensor> inputs, double rate,
                       RunOptions options) {
  if (feeds_.empty()) return step_->run(std::move(staged), inputs, options);
  for (std::size_t i = inputs.size(); i < inputs.size() + rates_; ++i)
    visit_floating(feeds_[i].dtype(), [&](auto type) {
      using T = decltype(type);
      feeds_[i].mutable_data<T>()[0] = static_cast<T>(rate);
    });
  if (of_all_ > 0) write_request(request_, feeds_[inputs.size() + rates_].mutable_data<double>());
  const InputsInFront held(feeds_, inputs);
  step_->run(std::move(staged), feeds_, options);
}

std::vector<NamedTensor> TrainingStep::gradients() const { return tensors_of(gradients_); }

std::vector<NamedTensor> TrainingStep::watched() const { return tensors_of(watched_); }

std::vector<std::vector<NamedTensor>> TrainingStep::contributions() const {
  std::vector<std::vector<NamedTensor>> rows;
  for (const NamedFetches& row : contributions_) rows.push_back(tensors_of(row));
  return rows;
}

std::vector<NamedTensor> TrainingStep::tensors_of(const NamedFetches& fetches) const {
  std::vector<NamedTensor> result;
  for (const auto& [name, fetch] : fetches) result.push_back({name, step_->fetched(fetch)});
  return result;
}

std::vector<NamedValue> TrainingStep::gradient_norms() const {
  if (norms_.empty()) return {};
  double factor = has_factor_ ? number_in(step_->fetched(squares_end_), 0) : 1;
  if (factor == 0) factor = std::numeric_limits<double>::quiet_NaN();  // nothing is updated
  std::vector<NamedValue> norms{{"gradient_norm", 0}};
  double all = 0;
  for (std::size_t v = 0; v < norms_.size(); ++v) {
    double sum = 0;
    for (std::size_t fetch = squares_; fetch < squares_end_; ++fetch)
      sum += number_in(step_->fetched(fetch), v);
    norms.push_back({cat(norms[0].name, "/", norms_[v]), factor * std::sqrt(sum)});
    all += sum;
  }
  norms[0].value = factor * std::sqrt(all);
  return norms;
}

StepRequest TrainingStep::requested() const {
  StepRequest all;
  if (of_all_ == 0) return all;
  const std::span<const double> values = step_->fetched(of_all_).data<double>();
  std::uint64_t first_hash = 0;
  for (std::size_t end = per_process_; end <= values.size(); end += per_process_) {
    const std::span<const double> request =
        values.subspan(end - kNumbersOfRequest, kNumbersOfRequest);
    const auto number = static_cast<int>(request[0]);
    const std::uint64_t hash = hash_of_request(request);
    if (end == per_process_) first_hash = hash;
    all.hashes_differ = all.hashes_differ || hash != first_hash;
    all.signal = std::max(all.signal, number % kComparisonRequest);
    all.comparison = all.comparison || (number & kComparisonRequest) != 0;
    all.stop = all.stop || (number & kStopRequest) != 0;
  }
  return all;
}

bool TrainingStep::fetched_applied() const {
  return step_->fetched(applied_).item<std::int64_t>() != 0;
}

double TrainingStep::number(std::size_t part, std::size_t i, std::size_t tower) const {
  if (of_all_ == 0) return number_in(step_->fetched(losses_[tower] + part), i);
  const std::size_t own = losses_.size();
  return step_->fetched(of_all_)
      .data<double>()[tower / own * per_process_ + tower % own * numbers_.count() +
                      numbers_.parts()[part].first + i];
}

double TrainingStep::combined(std::size_t part, std::size_t i) const {
  const MetricNumbers::Part& numbers = numbers_.parts()[part];
  const auto of = [&](std::size_t tower) { return number(part, i, tower); };
  return equal_ ? numbers.combine(samples_.size(), of) : numbers.combine(samples_, of);
}

std::vector<double> TrainingStep::tower_losses() const {
  std::vector<double> losses(samples_.size());
  for (std::size_t t = 0; t < losses.size(); ++t) losses[t] = number(0, 0, t);
  return losses;
}

void TrainingStep::metrics_of_run(std::span<double> result) const {
  for (std::size_t p = 1; p < numbers_.parts().size(); ++p)
    for (std::size_t i = 0; i < numbers_.parts()[p].count; ++i)
      result[numbers_.parts()[p].first - 1 + i] = combined(p, i);
}

std::span<ScoreTable> TrainingStep::add_scores(std::span<ScoreTable> tables) const {
  std::size_t used = 0;
  for (std::size_t p = 0; p < numbers_.parts().size(); ++p) {
    if (!numbers_.parts()[p].has_scores()) continue;
    for (const std::size_t tower : scored_)
      tables[used].add(step_->fetched(tower + p).data<double>());
    ++used;
  }
  return tables.subspan(used);
}

void numbers_of_runs(std::span<const TrainingStep> runs, std::span<double> result) {
  std::ranges::fill(result, std::numeric_limits<double>::quiet_NaN());
  result[0] = 0;
  std::size_t first = 1;
  for (const TrainingStep& run : runs) {
    result[0] += run.loss();
    run.metrics_of_run(result.subspan(first));
    first += run.numbers().count() - 1;
  }
}

void add_scores_of_runs(std::span<const TrainingStep> runs, std::span<ScoreTable> tables) {
  for (const TrainingStep& run : runs) tables = run.add_scores(tables);
}

namespace {

template <class Steps>
auto list_of(Steps& steps) {
  std::vector<decltype(&steps.by_form[0])> list;
  for (auto* const step : {&steps.first, &steps.between})
    if (*step) list.push_back(&**step);
  for (auto* const steps_of : {&steps.by_form, &steps.watching, &steps.free})
    for (auto& step : *steps_of) list.push_back(&step);
  return list;
}

}  // namespace

std::span<TrainingStep> TrainingSteps::of(const Batch& batch, std::int64_t batches_per_step) {
  const std::int64_t number = batch.position.batch % batches_per_step;
  if (number + 1 < batches_per_step) return {number == 0 ? &*first : &*between, 1};
  std::vector<TrainingStep>& due =
      !watching.empty() && watches.is_due(batch.position) ? watching : by_form;
  return std::span(due).subspan(batch.form * losses, losses);
}

std::vector<TrainingStep*> TrainingSteps::all() { return list_of(*this); }

std::vector<std::shared_ptr<const Plan>> TrainingSteps::plans() const {
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const TrainingStep* const step : list_of(*this)) plans.push_back(step->plan());
  return plans;
}

std::vector<PlanOfStep> TrainingSteps::plans_with_runs(std::int64_t batches_per_step) const {
  std::vector<PlanOfStep> plans;
  if (first) plans.push_back({first->plan(), 1});
  if (between) plans.push_back({between->plan(), batches_per_step - 2});
  if (!by_form.empty())
    for (const TrainingStep& step : std::span(by_form).first(losses))
      plans.push_back({step.plan(), 1});
  for (const TrainingStep& step : free) plans.push_back({step.plan(), 1});
  return plans;
}

}  // namespace belfry
