#include "belfry/trainers/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "belfry/framework/log.h"
#include "belfry/trainers/prefetch.h"

namespace belfry {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How many devices of each type must exist so that all of `devices` do.
std::map<std::string, int> device_count(std::span<const DeviceSpec> devices) {
  std::map<std::string, int> count;
  for (const DeviceSpec& device : devices) {
    require(device.type && device.index, "device '", device, "' needs a type and an index");
    int& n = count[*device.type];
    n = std::max(n, *device.index + 1);
  }
  return count;
}

}  // namespace

Trainer::Trainer(TrainerOptions options, const Dataset& train, const Dataset* test,
                 const TrainerDesign& design)
    : options_(std::move(options)),
      train_(train),
      test_(test),
      // A dry run plans one step, whatever the data.
      plan_(options_.dry_run ? std::ssize(options_.devices) * options_.batch_size : train.size(),
            std::ssize(options_.devices), options_.batch_size, options_.seed,
            {.uneven = options_.uneven, .tower_weights = options_.tower_weights}),
      graph_(options_.seed) {
  const std::map<std::string, int> devices = device_count(options_.devices);
  const std::vector<Dataset::Field> fields = train.signature();
  built_ = build_training_graph(
      graph_, {.model = options_.model,
               .devices = options_.devices,
               .variables = design.variables,
               .fields = fields,
               .forms = plan_.forms(),
               .update = [&](const GradientTable& gradients, const UpdateForm& form) -> Node& {
                 return design.update(options_, gradients, form);
               }});
  session_ = std::make_unique<Session>(
      graph_, SessionOptions{.device_count = devices,
                             .dry_run = options_.dry_run,
                             .log_device_placement = options_.log_device_placement,
                             .threads = options_.threads,
                             .placement_sink = options_.placement_sink});
  prepare();
}

Trainer::~Trainer() = default;

void Trainer::prepare() {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // before the first step
  step_metrics_.push_back({"loss", kNone});
  for (const NamedOutput& metric : built_.towers[0].metrics)
    step_metrics_.push_back({metric.name, kNone});
  for (const TrainingForm& form : built_.forms) forms_.push_back(prepare(form));
}

Trainer::Form Trainer::prepare(const TrainingForm& form) {
  Form made;
  std::vector<Fetch> fetches{*form.train_op};
  std::vector<FeedType> feeds;
  for (std::size_t t = 0; t < built_.towers.size(); ++t) {
    const TowerRecord& tower = built_.towers[t];
    for (const Output& input : tower.inputs) {
      feeds.push_back({input, input.shape()});
      feeds.back().shape[0] = form.batch.rows[t];
    }
    made.first.push_back(form.runs(t) ? fetches.size() : 0);
    if (!form.runs(t)) continue;
    fetches.emplace_back(tower.loss);
    for (const NamedOutput& metric : tower.metrics) fetches.emplace_back(metric.value);
  }
  const std::size_t inputs = feeds.size();
  for (const Output& rate : built_.learning_rates) feeds.push_back({rate, {}});
  for (const Output& zero : form.zeros) feeds.push_back({zero, zero.shape()});
  made.step = &session_->prepare(fetches, feeds);
  if (feeds.size() > inputs)
    for (const FeedType& feed : feeds) made.feeds.emplace_back(feed.shape, feed.where.dtype());
  return made;
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
  const bool whole = position.samples >= plan_.samples_per_epoch();
  if (!whole && position.samples % plan_.global_batch() != 0)
    log_warning("the global batch of ", plan_.global_batch(), " does not divide the ",
                position.samples, " samples that this epoch has taken; the last ",
                position.samples % plan_.global_batch(), " are taken again");
  if (position.seed != options_.seed)
    log_warning("the seed was ", position.seed, " and is now ", options_.seed,
                ": the order of the data changes");
  if (!whole) return;
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
    const Batch& batch = input.next();
    run_step(batch, step);
    call([&](Callback& c) { c.after_step(*this, step); });
    // Neither the first, which allocates, nor the one that writes a trace is typical.
    if (steps_ > first_step_ && steps_ != traced_step_) {
      timed_seconds_ += now() - start;
      ++timed_steps_;
      timed_samples_ += plan_.forms()[batch.form].total();
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

void Trainer::run_step(const Batch& batch, const StepInfo& step) {
  Trace trace;
  const RunOptions run{.trace = steps_ == traced_step_ ? &trace : nullptr};
  auto& [prepared, feeds, first] = forms_[batch.form];
  const std::vector<Tensor>& inputs = batch.tensors;
  if (feeds.empty()) {
    prepared->run(inputs, run);
  } else {
    // Assignment keeps the memory of shapes, so nothing is allocated. The inputs are let go of at
    // once, since the prefetcher would have to replace tensors that are still shared.
    static const Tensor kNone;
    std::ranges::copy(inputs, feeds.begin());
    for (std::size_t i = 0; i < built_.learning_rates.size(); ++i) {
      Tensor& rate = feeds[inputs.size() + i];
      visit_floating(rate.dtype(), [&](auto type) {
        using T = decltype(type);
        rate.mutable_data<T>()[0] = static_cast<T>(options_.optimizer.rate().at(step));
      });
    }
    prepared->run(feeds, run);
    std::fill_n(feeds.begin(), inputs.size(), kNone);
  }
  if (run.trace) options_.on_trace(trace);
  read_metrics(batch.form);
}

void Trainer::read_metrics(std::size_t index) {
  const Form& form = forms_[index];
  const BatchForm& batch = built_.forms[index].batch;
  const bool equal = batch.equal();
  for (std::size_t m = 0; m < step_metrics_.size(); ++m) {
    double sum = 0, weights = 0;
    for (std::size_t t = 0; t < form.first.size(); ++t) {
      if (batch.samples[t] == 0) continue;
      const double weight = equal ? 1 : static_cast<double>(batch.samples[t]);
      sum += weight * scalar_value(form.step->fetched(form.first[t] + m));
      weights += weight;
    }
    step_metrics_[m].value = sum / weights;
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

double Trainer::examples_per_second() const {
  if (timed_steps_ == 0) return 0;
  return static_cast<double>(timed_samples_) / timed_seconds_;
}

}  // namespace belfry
