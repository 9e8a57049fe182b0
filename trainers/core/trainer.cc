#include "belfry/trainers/core/trainer.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <typeinfo>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/core/default_shards.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/equal_processes.h"
#include "belfry/trainers/core/free_towers.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/run_identity.h"
#include "belfry/trainers/core/trainer_checks.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {

namespace {

// The options, such that the plans of all processes are alike.
TrainerOptions with_equal_plans(TrainerOptions options) {
  options.batches.feeds_every_tower = processes_of(options) > 1;
  return options;
}

// The number of samples that the plan of batches is made for.
std::int64_t samples_of(const TrainerOptions& options, const Dataset& train) {
  // A dry run plans one step, whatever the data.
  if (options.session.dry_run) return samples_of_step(options, processes_of(options));
  return checked_size(train, "training data");
}

}  // namespace

Trainer::Trainer(const TrainerKind& kind, TrainerOptions options, const Dataset& train,
                 const Dataset* test)
    : kind_(kind),
      options_(with_equal_plans(std::move(options))),
      train_(train),
      test_(test),
      batches_(samples_of(options_, train), towers_of(options_, processes_of(options_)),
               options_.batch_size, options_.seed, options_.batches),
      graph_(options_.seed, process_place(options_.session)) {
  check_options(options_, kind);
  check_data(train, test, options_.session.dry_run);
  options_.session.device_count = device_count(options_.devices);
  for (DeviceSpec& device : options_.devices) device = device.of_process(graph_.process());
  const std::vector<Dataset::Field> fields = train.signature();
  const auto choose = [&](const GradientTable& gradients) {
    if (kind.choose) choice_ = kind.choose(options_, gradients);
  };
  built_ = build_training_graph(graph_, {.kind = kind,
                                         .trainer = options_,
                                         .fields = fields,
                                         .forms = batches_.forms(),
                                         .choose = choose,
                                         .predictors = test ? options_.devices.size() : 1});
  choose_shards();
  session_ = std::make_unique<Session>(graph_, options_.session);
  prepare();
  if (options_.session.processes) arithmetics();  // asks all processes
}

void Trainer::choose_shards() {
  const auto devices = static_cast<int>(batches_.towers());
  if (options_.shards == 0) {
    default_shards_ = has_one_shard_each(options_, kind_.facts())
                          ? devices
                          : default_shards(work_of(built_.towers[0], batches_.forms()[0].rows[0]),
                                           batches_.global_batch());
    options_.shards = (default_shards_ + devices - 1) / devices * devices;
  }
  options_.session.shards_per_device = options_.shards / devices;
}

Trainer::~Trainer() = default;

void Trainer::prepare() {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // before the first step
  step_metrics_.push_back({"loss", kNone});
  for (const NamedOutput& metric : built_.towers[0].metrics)
    step_metrics_.push_back({metric.name, kNone});
  const PrepareOptions how{.gathers_first =
                               updates_parts(options_) && batches_.batches_per_step() == 1};
  const auto compiled = [&](const StepNodes& step, bool keeps_gradients) {
    return TrainingStep(*session_, step, built_.towers, built_.learning_rates, how,
                        keeps_gradients);
  };
  for (const StepNodes& step : built_.steps) {
    const auto before_last = [&](Node* op) -> std::optional<TrainingStep> {
      StepNodes nodes = step;
      nodes.train_op = op;
      if (!op) return {};
      return compiled(nodes, false);
    };
    training_steps_.first = before_last(step.accumulation.begin);
    training_steps_.between = before_last(step.accumulation.add);
    training_steps_.by_form.push_back(compiled(step, options_.keeps_gradients));
  }
  for (std::size_t t = 0; t < built_.tower_ops.size(); ++t) {
    const BatchForm own = batches_.forms()[0].of_tower(t);
    training_steps_.free.emplace_back(
        *session_, StepNodes{.batch = own, .all = own, .train_op = built_.tower_ops[t]},
        std::span(built_.towers).subspan(t, 1), built_.learning_rates,
        PrepareOptions{.locks = LockDuration::kEachVariable});
  }
}

std::int64_t Trainer::total_steps() const {
  std::int64_t left =
      batches_.steps_per_epoch() * (options_.epochs - counts_.epochs) - counts_.epoch_step;
  if (options_.max_steps > 0) left = std::min(left, options_.max_steps - counts_.steps);
  return counts_.steps + std::max(left, std::int64_t{0});
}

void Trainer::check_position(const TrainingPosition& position) {
  constexpr int kMostEpochs = std::numeric_limits<int>::max();
  require(position.steps >= 0 && position.epoch >= 0 && position.epoch < kMostEpochs &&
              position.samples >= 0,
          "training cannot go on at step ", position.steps, ", epoch ", position.epoch, ", sample ",
          position.samples);
}

void Trainer::resume(const TrainingPosition& position) {
  check_position(position);
  counts_.steps = counts_.first_step = position.steps;
  counts_.epochs = static_cast<int>(position.epoch);
  counts_.epoch_step = position.samples / batches_.samples_per_step();
  const bool whole = position.samples >= batches_.samples_per_epoch();
  const std::int64_t step = batches_.samples_per_step();
  if (!whole && position.samples % step != 0)
    log_warning(batches_.batches_per_step() == 1 ? "the global batch of " : "a step of ", step,
                batches_.batches_per_step() == 1 ? "" : " samples", " does not divide the ",
                position.samples, " samples that this epoch has taken; the last ",
                position.samples % step, " are taken again");
  if (position.seed != options_.seed)
    log_warning("the seed was ", position.seed, " and is now ", options_.seed,
                ": the order of the data changes");
  if (!whole) return;
  ++counts_.epochs;
  counts_.epoch_step = 0;
}

TrainingPosition Trainer::position() const {
  return {.steps = counts_.steps,
          .epoch = counts_.epochs,
          .samples = counts_.epoch_step * batches_.samples_per_step(),
          .seed = options_.seed};
}

StepInfo Trainer::info() const {
  return {.step = counts_.steps,
          .steps_per_epoch = batches_.steps_per_epoch(),
          .epoch = counts_.epochs,
          .seconds = seconds_now() - began_,
          .total_steps = total_steps()};
}

template <class F>
void Trainer::call(const char* hook, std::int64_t step, const F& f) {
  const TrainingActivity::Place before = activity_.place();  // a callback that calls others, say
  for (const std::shared_ptr<Callback>& callback : options_.callbacks)
    call_one(*callback, hook, step, f);
  activity_.enter(before);
}

template <class F>
void Trainer::call_one(Callback& callback, const char* hook, std::int64_t step, const F& f) {
  const std::type_info& type = typeid(callback);
  const TrainingActivity::Place place{TrainingActivity::What::kCallback, &type, hook, step};
  activity_.enter(place);
  try {
    f(callback);
  } catch (const Error&) {
    rethrow_from({.what = place.str(), .step = step, .is_told = is_of_belfry(type)});
  } catch (...) {
    rethrow_from({.what = place.str(), .step = step});
  }
}

void Trainer::check_callbacks() {
  call("check", counts_.steps + 1, [&](Callback& c) { c.check(*this); });
}

// Where steps come from: the batches of all towers, or towers that take their own.
struct Trainer::Source {
  std::unique_ptr<Prefetcher> input;
  std::unique_ptr<FreeTowers> free;
};

TowerSpan Trainer::own_towers() const {
  const auto own = std::ssize(options_.devices);
  return {graph_.process().rank * own, own};
}

// The prefetcher calls this with each batch that it has gathered. Empty if no GPU takes one.
std::function<StagedFeeds(const Batch&, std::stop_token)> Trainer::stager() {
  if (std::ranges::none_of(training_steps_.all(), &TrainingStep::stages)) return {};
  return [this](const Batch& batch, std::stop_token stop) {
    TrainingStep& step = training_steps_.of(batch, batches_.batches_per_step());
    return step.stage(batch.tensors, std::move(stop));
  };
}

std::unique_ptr<Trainer::Source> Trainer::open_source() {
  const std::int64_t last = total_steps();
  if (options_.on_trace) {
    const std::int64_t second = std::max(counts_.steps, std::min(counts_.steps + 1, last - 1)) + 1;
    traced_ = options_.traced.value_or(StepRange{second, second});
  }
  auto source = std::make_unique<Source>();
  const BatchPlan::Position start{counts_.epochs, counts_.epoch_step * batches_.batches_per_step()};
  if (built_.tower_ops.empty())
    source->input = std::make_unique<Prefetcher>(train_, batches_, start, Prefetcher::kSlots,
                                                 own_towers(), stager(), options_.data_workers);
  else
    source->free = std::make_unique<FreeTowers>(
        FreeTowers::Options{.towers = training_steps_.free,
                            .data = train_,
                            .plan = batches_,
                            .start = start,
                            .steps = last - counts_.steps,
                            .traced = traced_.first - 1 - counts_.steps,
                            .data_workers = options_.data_workers});
  return source;
}

void Trainer::evaluated(const StepInfo& info) {
  evaluated_at_ = info;
  call("after_evaluation", info.step, [&](Callback& c) { c.after_evaluation(*this, info); });
}

// `info` is of an evaluation, if there was one.
void Trainer::tell_metrics(const StepInfo& info) {
  if (new_metrics_.empty()) return;
  const std::vector<NamedValue> metrics = std::exchange(new_metrics_, {});
  const StepInfo at = std::exchange(evaluated_at_, {}).value_or(info);
  call("after_metrics", at.step, [&](Callback& c) { c.after_metrics(*this, at, metrics); });
}

const JsonValue& Trainer::identity() const {
  if (identity_) return *identity_;
  data_stamp_ = stamp_of_files(train_);  // what is written from now on is a change
  return identity_.emplace(run_identity(*this, train_));
}

void Trainer::train() try {
  require(!options_.session.dry_run, "a dry run trains nothing");
  run();
  activity_.enter({.what = TrainingActivity::What::kEnded});
} catch (const std::exception& error) {
  for (const std::shared_ptr<Callback>& callback : options_.callbacks) tell(*callback, error);
  activity_.enter({.what = TrainingActivity::What::kEnded});
  throw;
}

void Trainer::tell(Callback& callback, const std::exception& error) try {
  callback.on_error(*this, error);
} catch (const std::exception& other) {
  log_error("a callback that was told of an error failed: ", other.what());
} catch (...) {
  log_error("a callback that was told of an error threw what is no std::exception");
}

void Trainer::interrupt(int signal) {
  if (graph_.process().size == 1) return end_by(signal);
  ask({.signal = signal, .comparison = request_.comparison});
}

void Trainer::ask(StepRequest request) {
  request_ = request;
  for (TrainingStep* const step : training_steps_.all()) step->request(request);
}

void Trainer::compare_processes_soon() {
  if (graph_.process().size > 1) ask({.signal = request_.signal, .comparison = true});
}

void Trainer::compare_processes(std::int64_t steps) {
  Processes* const processes = options_.session.processes.get();
  if (!processes || compared_at_ == steps) return;
  require_equal_processes(*processes, *session_, graph_, steps);
  compared_at_ = steps;
}

void Trainer::end_by(int signal) {
  stopped_ = true;
  interruption_ = signal;
}

// Before the first step: processes that differ would wait for each other, or train two models.
void Trainer::agree() {
  Processes* const processes = options_.session.processes.get();
  if (!processes) return;
  require_agreement(*processes, agreed_items(*this));
  const std::string& mixed = arithmetics().mixed;
  if (!mixed.empty() && processes->rank() == 0)
    log_warning(mixed, ": bits may differ from those of one process");
}

void Trainer::run() {
  call("setup", counts_.steps + 1, [&](Callback& c) {
    c.check(*this);
    c.setup(*this);
  });
  new_metrics_.clear();  // those of a run before, and first values
  graph_.freeze();
  agree();
  begin_to_watch();
  std::unique_ptr<Source> source = open_source();
  began_ = seconds_now();
  try {
    make_steps(source);
  } catch (const std::exception&) {
    if (source && source->free) source->free->rethrow_failure();  // it was first
    throw;
  }
  activity_.enter({.what = TrainingActivity::What::kEnd, .step = counts_.steps + 1});
  source.reset();
  compare_processes(counts_.steps);  // the end may be saved
  counts_.are_final = true;
  end();
}

void Trainer::make_steps(std::unique_ptr<Source>& source) {
  const std::int64_t last = total_steps();
  while (counts_.steps < last && !stopped_) {
    const double start = seconds_now();
    StepInfo step = info();
    call("before_step", step.step + 1, [&](Callback& c) { c.before_step(*this, step); });
    tell_metrics(step);
    if (stopped_) break;  // by an evaluation that was due when the run before ended
    const std::int64_t per_step = batches_.batches_per_step();
    const std::int64_t samples =
        batches_.forms()[batches_.form_of(counts_.epoch_step * per_step)].total() * per_step;
    const double step_start = seconds_now();
    const bool with_trace = run_step(*source, step);
    const double step_end = seconds_now();
    step_examples_per_second_ = static_cast<double>(samples) / (step_end - step_start);
    step.seconds = step_end - began_;
    call("after_step", step.step + 1, [&](Callback& c) { c.after_step(*this, step); });
    ++step.step;
    tell_metrics(step);
    // Neither the first, which allocates, nor the one that writes a trace is typical.
    if (counts_.steps > counts_.first_step && !with_trace) {
      timed_.seconds += seconds_now() - start;
      ++timed_.steps;
      timed_.samples += samples;
    }
    ++counts_.steps;
    if (std::exchange(comparison_due_, false)) {
      ask({.signal = request_.signal});
      compare_processes(counts_.steps);
    }
    if (options_.on_nonfinite == OnNonfinite::kStop && not_finite_since()) {
      source.reset();  // towers that run free come to rest
      throw Diverged(find_divergence(*this));
    }
    if (++counts_.epoch_step == batches_.steps_per_epoch()) {
      const StepInfo epoch = info();
      ++counts_.epochs;
      counts_.epoch_step = 0;
      call("after_epoch", epoch.step, [&](Callback& c) { c.after_epoch(*this, epoch); });
      tell_metrics(epoch);
    }
  }
}

// What one callback cannot write takes nothing from the others.
void Trainer::end() {
  std::exception_ptr first;
  const auto guarded = [&](const auto& f) {
    try {
      f();
    } catch (const IoError& error) {
      if (first)
        log_error(error_text(fields_of(error)));
      else
        first = std::current_exception();
    }
  };
  for (const std::shared_ptr<Callback>& callback : options_.callbacks)
    guarded([&] {
      call_one(*callback, "after_training", counts_.steps,
               [&](Callback& c) { c.after_training(*this, info()); });
    });
  guarded([&] { tell_metrics(info()); });
  if (first) std::rethrow_exception(first);
}

// Whether it was traced.
bool Trainer::run_step(Source& source, const StepInfo& step) try {
  step_rate_ = options_.optimizer.rate().at(step);
  std::optional<Trace> trace;
  if (source.free) {
    activity_.enter({.what = TrainingActivity::What::kTowers, .step = step.step + 1});
    source.free->next(step_rate_, batches_.steps_per_epoch() - counts_.epoch_step, step_metrics_);
    suspects_.input = source.free->not_finite_input();
    trace = source.free->take_trace();
  } else {
    if (traced_.contains(counts_.steps + 1)) trace.emplace();
    run_batches(source, trace ? &*trace : nullptr);
  }
  if (trace) options_.on_trace(*trace);
  look_at_loss();
  look_at_first_update();
  look_at_scale();
  return trace.has_value();
} catch (const std::exception& error) {
  add_step_to_origin(error, step.step + 1);
  throw;
}

void Trainer::run_batches(Source& source, Trace* trace) {
  const std::int64_t count = batches_.batches_per_step(), number = counts_.steps + 1;
  for (std::int64_t b = 0; b < count; ++b) {
    activity_.enter({.what = TrainingActivity::What::kInput, .step = number});
    Batch& batch = source.input->next();
    activity_.enter({.what = TrainingActivity::What::kStep, .step = number});
    TrainingStep& step = training_steps_.of(batch, count);
    step.run(std::move(batch.staged), batch.tensors, step_rate_,
             {.trace = b + 1 == count ? trace : nullptr});
    last_step_ = &step;
    look_at_input(batch, step.metric(0));
    const StepRequest asked = step.requested();
    if (asked.signal != 0) end_by(asked.signal);
    comparison_due_ = comparison_due_ || asked.comparison;
    for (std::size_t m = 0; m < step_metrics_.size(); ++m) {
      double& value = step_metrics_[m].value;
      value = b == 0 ? step.metric(m) : value + step.metric(m);
      if (b + 1 == count && count > 1) value /= static_cast<double>(count);
    }
  }
}

}  // namespace belfry
