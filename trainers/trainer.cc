#include "belfry/trainers/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "belfry/framework/log.h"
#include "belfry/framework/plan.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/prefetch.h"

namespace belfry {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(TrainerOptions options, const Dataset& train, const Dataset* test,
                 const TrainerDesign& design)
    : options_(std::move(options)),
      train_(train),
      test_(test),
      // A dry run plans one step, whatever the data.
      plan_(options_.dry_run ? std::ssize(options_.devices) * options_.batch_size : train.size(),
            std::ssize(options_.devices), options_.batch_size, options_.seed),
      graph_(options_.seed) {
  const std::map<std::string, int> devices = device_count(options_.devices);
  const std::vector<Dataset::Field> fields = train.signature();
  built_ = build_training_graph(graph_, {.model = options_.model,
                                         .devices = options_.devices,
                                         .variables = design.variables,
                                         .fields = fields,
                                         .batch_size = options_.batch_size,
                                         .update = [&](const GradientTable& gradients) -> Node& {
                                           return design.update(options_, gradients);
                                         }});
  session_ = std::make_unique<Session>(
      graph_, SessionOptions{.device_count = devices,
                             .dry_run = options_.dry_run,
                             .log_device_placement = options_.log_device_placement,
                             .threads = options_.threads,
                             .placement_sink = options_.placement_sink,
                             .fuse_updates = options_.fuse_updates,
                             .share_replicas = options_.share_replicas});
  prepare();
}

Trainer::~Trainer() = default;

void Trainer::prepare() {
  std::vector<Fetch> fetches{*built_.train_op};
  std::vector<FeedType> feeds;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // before the first step
  step_metrics_.push_back({"loss", kNone});
  for (const NamedOutput& metric : built_.towers[0].metrics)
    step_metrics_.push_back({metric.name, kNone});
  for (const TowerRecord& tower : built_.towers) {
    fetches.emplace_back(tower.loss);
    for (const NamedOutput& metric : tower.metrics) fetches.emplace_back(metric.value);
    for (const Output& input : tower.inputs) feeds.push_back({input, input.shape()});
  }
  for (const Output& rate : built_.learning_rates) feeds.push_back({rate, {}});
  step_ = &session_->prepare(fetches, feeds);
  if (built_.learning_rates.empty()) return;
  for (const FeedType& feed : feeds) feeds_.emplace_back(feed.shape, feed.where.dtype());
}

std::int64_t Trainer::total_steps() const {
  std::int64_t left = plan_.steps_per_epoch() * (options_.epochs - epochs_) - epoch_step_;
  if (options_.max_steps > 0) left = std::min(left, options_.max_steps - steps_);
  return steps_ + std::max(left, std::int64_t{0});
}

void Trainer::resume(const TrainingPosition& position) {
  constexpr int kMostEpochs = std::numeric_limits<int>::max();
  require(position.steps >= 0 && position.epoch >= 0 && position.epoch < kMostEpochs &&
              position.samples >= 0,
          "training cannot go on at step ", position.steps, ", epoch ", position.epoch, ", sample ",
          position.samples);
  steps_ = first_step_ = position.steps;
  epochs_ = static_cast<int>(position.epoch);
  epoch_step_ = position.samples / plan_.global_batch();
  if (position.samples % plan_.global_batch() != 0)
    log_warning("the global batch of ", plan_.global_batch(), " does not divide the ",
                position.samples, " samples that this epoch has taken; the last ",
                position.samples % plan_.global_batch(), " are taken again");
  if (position.seed != options_.seed)
    log_warning("the seed was ", position.seed, " and is now ", options_.seed,
                ": the order of the data changes");
  if (epoch_step_ < plan_.steps_per_epoch()) return;
  ++epochs_;
  epoch_step_ = 0;
}

TrainingPosition Trainer::position() const {
  return {.steps = steps_,
          .epoch = epochs_,
          .samples = epoch_step_ * plan_.global_batch(),
          .seed = options_.seed};
}

StepInfo Trainer::info() const {
  return {.step = steps_,
          .steps_per_epoch = plan_.steps_per_epoch(),
          .epoch = epochs_,
          .seconds = now() - began_};
}

template <class F>
void Trainer::call(const F& f) {
  for (const std::shared_ptr<Callback>& callback : options_.callbacks) f(*callback);
}

void Trainer::train() {
  require(!options_.dry_run, "a dry run trains nothing");
  call([&](Callback& c) { c.setup(*this); });
  graph_.freeze();
  Prefetcher input(train_, plan_, plan_.samples_before({epochs_, epoch_step_}));
  began_ = now();
  const std::int64_t last = total_steps();
  if (options_.on_trace) traced_step_ = std::max(steps_, std::min(steps_ + 1, last - 1));
  while (steps_ < last && !stopped_) {
    const double start = now();
    const StepInfo step = info();
    call([&](Callback& c) { c.before_step(*this, step); });
    run_step(input.next().tensors, step);
    call([&](Callback& c) { c.after_step(*this, step); });
    // Neither the first, which allocates, nor the one that writes a trace is typical.
    if (steps_ > first_step_ && steps_ != traced_step_) {
      timed_seconds_ += now() - start;
      ++timed_steps_;
    }
    ++steps_;
    if (++epoch_step_ == plan_.steps_per_epoch()) {
      const StepInfo epoch = info();
      ++epochs_;
      epoch_step_ = 0;
      call([&](Callback& c) { c.after_epoch(*this, epoch); });
    }
  }
  if (options_.on_trace && steps_ <= traced_step_)
    log_warning("no step was traced: training ended after ", steps_ - first_step_, " steps");
  call([&](Callback& c) { c.after_training(*this, info()); });
}

void Trainer::run_step(std::span<const Tensor> inputs, const StepInfo& step) {
  Trace trace;
  const RunOptions run{.trace = steps_ == traced_step_ ? &trace : nullptr};
  if (feeds_.empty()) {
    step_->run(inputs, run);
  } else {
    // Assignment keeps the memory of shapes, so nothing is allocated. The inputs are let go of at
    // once, since the prefetcher would have to replace tensors that are still shared.
    static const Tensor kNone;
    std::ranges::copy(inputs, feeds_.begin());
    for (std::size_t i = inputs.size(); i < feeds_.size(); ++i)
      visit_floating(feeds_[i].dtype(), [&](auto type) {
        using T = decltype(type);
        feeds_[i].mutable_data<T>()[0] = static_cast<T>(options_.optimizer.rate().at(step));
      });
    step_->run(feeds_, run);
    std::fill_n(feeds_.begin(), inputs.size(), kNone);
  }
  if (run.trace) options_.on_trace(trace);
  read_metrics();
}

void Trainer::read_metrics() {
  const std::size_t metrics = step_metrics_.size(), towers = built_.towers.size();
  for (std::size_t m = 0; m < metrics; ++m) {
    double sum = 0;
    // Fetch 0 is the train op.
    for (std::size_t t = 0; t < towers; ++t)
      sum += scalar_value(step_->fetched(1 + t * metrics + m));
    step_metrics_[m].value = sum / static_cast<double>(towers);
  }
  if (warned_ || std::isfinite(step_metrics_[0].value)) return;
  log_warning("the loss is ", step_metrics_[0].value, " at step ", steps_,
              "; a smaller --learning_rate may help");
  warned_ = true;
}

const NamedValue* Trainer::find_metric(std::string_view name) const {
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values)
      if (value.name == name) return &value;
  return nullptr;
}

double Trainer::metric(std::string_view name) const {
  if (const NamedValue* found = find_metric(name)) return found->value;
  std::vector<std::string> names;
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values) names.push_back(value.name);
  throw NotFound(cat("no metric '", name, "'; there are ", join(names)));
}

void Trainer::set_metric(std::string_view name, double value) {
  for (NamedValue& known : other_metrics_)
    if (known.name == name) {
      known.value = value;
      return;
    }
  require(!find_metric(name), "metric '", name, "' is set by the model");
  other_metrics_.push_back({std::string(name), value});
}

std::int64_t Trainer::bytes_moved() const {
  std::int64_t bytes = 0;
  for (const TransferRecord& transfer : step_->plan().transfers) bytes += transfer.bytes;
  return bytes;
}

double Trainer::examples_per_second() const {
  if (timed_steps_ == 0) return 0;
  return static_cast<double>(timed_steps_ * plan_.global_batch()) / timed_seconds_;
}

}  // namespace belfry
