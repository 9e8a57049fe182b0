#include "belfry/trainers/core/training_loop.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <typeinfo>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/device/gpu_memory.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/output_watch.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/free_towers.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/run_fingerprint.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/core/training_record.h"
#include "belfry/trainers/core/values_of_all.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/util/clock.h"

namespace belfry {

TrainingLoop::TrainingLoop(Trainer& trainer, BuiltTraining& built, TrainingProgress& progress,
                           TrainingRecord& record)
    : trainer_(trainer),
      built_(built),
      progress_(progress),
      record_(record),
      totals_(MetricNumbers(built.nodes().towers[0])) {}

template <class F>
void TrainingLoop::call(const char* hook, std::int64_t step, const F& f) {
  const TrainingActivity::Place before = activity_.place();  // a callback that calls others, say
  for (const std::shared_ptr<Callback>& callback : built_.options().callbacks)
    call_one(*callback, hook, step, f);
  activity_.enter(before);
}

template <class F>
void TrainingLoop::call_one(Callback& callback, const char* hook, std::int64_t step, const F& f) {
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

void TrainingLoop::check_callbacks() {
  call("check", progress_.steps() + 1, [&](Callback& c) { c.check(trainer_); });
}

void TrainingLoop::evaluated(const StepInfo& info) {
  evaluated_at_ = info;
  stop_is_usual_ = true;
  call("after_evaluation", info.step, [&](Callback& c) { c.after_evaluation(trainer_, info); });
}

// `info` is of an evaluation, if there was one.
void TrainingLoop::tell_metrics(const StepInfo& info) {
  const std::vector<NamedValue> metrics = record_.take_new_metrics();
  if (!metrics.empty()) {
    const StepInfo at = std::exchange(evaluated_at_, {}).value_or(info);
    call("after_metrics", at.step, [&](Callback& c) { c.after_metrics(trainer_, at, metrics); });
  }
  if (std::exchange(stop_is_usual_, false)) agree_to_stop();
}

void TrainingLoop::interrupt(int signal) {
  if (built_.graph().process().size == 1) return end_by(signal);
  StepRequest request = request_;
  request.signal = signal;
  ask(request);
}

void TrainingLoop::stop() {
  if (built_.graph().process().size == 1) {
    stopped_ = true;
    return;
  }
  StepRequest request = request_;
  request.stop = true;
  ask(request);
}

// All processes call it after the same step.
void TrainingLoop::agree_to_stop() {
  if (!stopped_)
    stopped_ = !of_any_process(built_.processes(), request_.stop ? "stop" : "").empty();
}

void TrainingLoop::end_by(int signal) {
  stopped_ = true;
  interruption_ = signal;
}

void TrainingLoop::ask(StepRequest request) {
  request_ = request;
  for (TrainingStep* const step : built_.steps().all()) step->request(request);
}

void TrainingLoop::compare_processes_soon() {
  if (built_.graph().process().size == 1) return;
  StepRequest request = request_;
  request.comparison = true;
  ask(request);
}

void TrainingLoop::compare_processes(std::int64_t steps) {
  if (!built_.processes() || compared_at_ == steps) return;
  hashes_ = replica_hashes(built_.session(), built_.graph(), steps);
  require_equal_hashes();
  compared_at_ = steps;
  forget_losses(steps);
}

void TrainingLoop::require_equal_hashes() try {
  require_equal_processes(*built_.processes(), hashes_);
} catch (ReplicasDiffer& differ) {
  differ.add(losses_);
  throw;
}

void TrainingLoop::note_losses(const TrainingStep& run) {
  constexpr std::size_t kMost = 1000;
  const std::int64_t step = progress_.steps() + 1;
  if (losses_.back().step == step) losses_.pop_back();  // of a batch or a loss before
  if (losses_.size() == kMost) losses_.erase(losses_.begin());
  losses_.push_back({step, run.tower_losses()});
}

// The losses of steps before variables were equal say nothing of a later difference.
void TrainingLoop::forget_losses(std::int64_t equal_steps) {
  const ReplicaDifference::Losses last = losses_.back();
  std::erase_if(losses_, [&](const auto& of_step) { return of_step.step <= equal_steps; });
  if (losses_.empty()) losses_ = {last};
}

void TrainingLoop::compare_processes_by_next_step(std::int64_t steps) {
  if (!built_.processes() || compared_at_ == steps) return;
  StepRequest request = request_;
  hashes_ = replica_hashes(built_.session(), built_.graph(), steps);
  request.hash = hashes_.all();
  ask(request);
}

bool TrainingLoop::is_compared() const {
  return built_.graph().process().size == 1 || compared_at_ == progress_.steps();
}

// Before the first step: processes that differ would wait for each other, or train two models.
void TrainingLoop::agree() {
  Processes* const processes = built_.processes();
  if (!processes) return;
  require_agreement(*processes, agreed_items(built_, progress_, record_.fingerprint()));
  const std::string& mixed = built_.arithmetics().mixed;
  if (!mixed.empty() && processes->rank() == 0)
    log_warning(mixed, ": bits may differ from those of one process");
}

// Where steps come from: the batches of all towers, or towers that take their own.
struct TrainingLoop::Source {
  std::unique_ptr<Prefetcher> input;
  std::unique_ptr<FreeTowers> free;
};

namespace {

bool stages(BuiltTraining& built) {
  return std::ranges::any_of(built.steps().all(), &TrainingStep::stages);
}

std::shared_ptr<Allocator> memory_of_batches(BuiltTraining& built) {
  return stages(built) ? feed_memory(*gpus().backend()) : nullptr;
}

// The prefetcher calls this with each batch that it has gathered. Empty if no GPU takes one.
std::function<StagedFeeds(const Batch&, std::stop_token)> stager(BuiltTraining& built) {
  if (!stages(built)) return {};
  return [&built](const Batch& batch, std::stop_token stop) {
    TrainingStep& first = built.steps().of(batch, built.batches().batches_per_step())[0];
    return first.stage(batch.tensors, std::move(stop));
  };
}

}  // namespace

std::unique_ptr<TrainingLoop::Source> TrainingLoop::open_source() {
  const TrainerOptions& options = built_.options();
  const std::int64_t last = progress_.total_steps(), done = progress_.steps();
  if (options.on_trace) {
    const std::int64_t second = std::max(done, std::min(done + 1, last - 1)) + 1;
    traced_ = options.traced.value_or(StepRange{second, second});
  }
  WatchedSteps& watches = built_.steps().watches;
  watches.before = done - watches.step_at(progress_.next_batch());
  auto source = std::make_unique<Source>();
  if (built_.nodes().tower_ops.empty())
    source->input = std::make_unique<Prefetcher>(
        built_.train_data(), built_.batches(), progress_.next_batch(), Prefetcher::kSlots,
        built_.own_towers(), stager(built_), options.data_workers, memory_of_batches(built_));
  else
    source->free =
        std::make_unique<FreeTowers>(FreeTowers::Options{.towers = built_.steps().free,
                                                         .data = built_.train_data(),
                                                         .plan = built_.batches(),
                                                         .start = progress_.next_batch(),
                                                         .steps = last - done,
                                                         .traced = traced_.first - 1 - done,
                                                         .data_workers = options.data_workers});
  return source;
}

void TrainingLoop::run() try {
  require(!built_.options().session.dry_run, "a dry run trains nothing");
  train();
  activity_.enter({.what = TrainingActivity::What::kEnded});
} catch (const std::exception& error) {
  for (const std::shared_ptr<Callback>& callback : built_.options().callbacks)
    tell(*callback, error);
  activity_.enter({.what = TrainingActivity::What::kEnded});
  throw;
}

void TrainingLoop::tell(Callback& callback, const std::exception& error) try {
  callback.on_error(trainer_, error);
} catch (const std::exception& other) {
  log_error("a callback that was told of an error failed: ", other.what());
} catch (...) {
  log_error("a callback that was told of an error threw what is no std::exception");
}

void TrainingLoop::train() {
  call("setup", progress_.steps() + 1, [&](Callback& c) {
    c.check(trainer_);
    c.setup(trainer_);
  });
  record_.take_new_metrics();  // those of a run before, and first values
  built_.graph().freeze();
  agree();
  agree_to_stop();
  stopped_ = stopped_ || built_.options().evaluates_only;
  record_.watch().begin();
  std::unique_ptr<Source> source = stopped_ ? nullptr : open_source();
  progress_.begin();
  try {
    make_steps(source);
  } catch (const std::exception&) {
    if (source && source->free) source->free->rethrow_failure();  // it was first
    throw;
  }
  activity_.enter({.what = TrainingActivity::What::kEnd, .step = progress_.steps() + 1});
  source.reset();
  compare_processes(progress_.steps());  // the end may be saved
  is_complete_ = true;
  end();
}

// Calls callbacks of phase `first` and later ones.
void TrainingLoop::end_epoch(const StepInfo& epoch, CallbackPhase first) {
  call("after_epoch", epoch.step, [&](Callback& c) {
    if (c.phase() < first) return;
    epoch_is_open_ = c.phase() <= CallbackPhase::kSave;
    c.after_epoch(trainer_, epoch);
  });
  epoch_is_open_ = false;
  stop_is_usual_ = true;
  tell_metrics(epoch);
}

void TrainingLoop::make_steps(std::unique_ptr<Source>& source) {
  if (std::exchange(epoch_is_open_, false) && !stopped_) {
    StepInfo epoch = progress_.info();
    --epoch.epoch;
    end_epoch(epoch, CallbackPhase::kSave);
  }
  const std::int64_t last = progress_.total_steps();
  while (progress_.steps() < last && !stopped_ && !is_at_end(*source)) {
    const double start = seconds_now();
    StepInfo step = progress_.info();
    call("before_step", step.step + 1, [&](Callback& c) { c.before_step(trainer_, step); });
    tell_metrics(step);
    if (stopped_) break;  // in before_step(), or by an evaluation that was due
    const std::int64_t samples = progress_.samples_of_step();
    const double step_start = progress_.seconds();
    const bool with_trace = run_step(*source, step);
    if (std::exchange(request_.hash, 0) != 0) {  // it has travelled
      ask(request_);
      forget_losses(step.step);
    }
    step.seconds = progress_.seconds();
    record_.note_speed(static_cast<double>(samples) / (step.seconds - step_start));
    call("after_step", step.step + 1, [&](Callback& c) { c.after_step(trainer_, step); });
    ++step.step;
    tell_metrics(step);
    // Neither the first, which allocates, nor the one that writes a trace is typical.
    if (progress_.steps_of_run() > 0 && !with_trace)
      record_.add_time(seconds_now() - start, samples);
    record_.begin_time();
    progress_.end_step();
    if (std::exchange(comparison_due_, false)) {
      request_.comparison = false;
      ask(request_);
      compare_processes(progress_.steps());
    }
    if (built_.options().on_nonfinite != OnNonfinite::kContinue &&
        record_.watch().losses().not_finite_since()) {
      source.reset();  // towers that run free come to rest
      throw Diverged(find_divergence(built_, record_));
    }
    if (progress_.steps_left_of_epoch() == 0) {
      const StepInfo epoch = progress_.info();
      progress_.end_epoch();
      end_epoch(epoch, CallbackPhase::kRequest);
    }
  }
}

// Whether a stream has ended: after the same step in all processes.
bool TrainingLoop::is_at_end(Source& source) {
  if (!built_.train_data().is_stream()) return false;
  activity_.enter({.what = TrainingActivity::What::kInput, .step = progress_.steps() + 1});
  return source.input->is_at_end();
}

// What one callback cannot write takes nothing from the others.
void TrainingLoop::end() {
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
  for (const std::shared_ptr<Callback>& callback : built_.options().callbacks)
    guarded([&] {
      call_one(*callback, "after_training", progress_.steps(),
               [&](Callback& c) { c.after_training(trainer_, progress_.info()); });
    });
  guarded([&] { tell_metrics(progress_.info()); });
  if (first) std::rethrow_exception(first);
}

// Whether it was traced.
bool TrainingLoop::run_step(Source& source, const StepInfo& step) try {
  record_.begin_step(step);
  std::optional<Trace> trace;
  if (source.free) {
    activity_.enter({.what = TrainingActivity::What::kTowers, .step = step.step + 1});
    source.free->next(record_.rate_of_loss(0), progress_.steps_left_of_epoch(),
                      record_.values_of_step());
    record_.watch().note_input(source.free->not_finite_input());
    trace = source.free->take_trace();
  } else {
    if (traced_.contains(step.step + 1)) trace.emplace();
    run_batches(source, trace ? &*trace : nullptr);
  }
  if (trace) built_.options().on_trace(*trace);
  look_at_step(step);
  return trace.has_value();
} catch (const std::exception& error) {
  add_step_to_origin(error, step.step + 1);
  throw;
}

// All processes are here, with the same loss and gradients. With a guard, a step that was not
// finite has changed nothing, unless by its other losses or by finite batches
// (DivergenceWatch::changes()). The loss scale of f16 mends gradients.
void TrainingLoop::look_at_step(const StepInfo& step) {
  DivergenceWatch& watch = record_.watch();
  const double loss = record_.step_metrics()[0].value;
  bool finite = std::isfinite(loss) && (applied_ || built_.nodes().loss_scale);
  const OnNonfinite policy = built_.options().on_nonfinite;
  if (!finite && built_.guards()) watch.note_changes(updated_);
  if (finite && has_overflowed()) {
    finite = false;
    watch.note_overflow();
  }
  if (finite || !built_.guards()) return watch.look_at_step(loss, finite, applied_);
  // After an update that has overflowed, no step would be finite.
  if (policy == OnNonfinite::kSkip && bad_variable(built_).empty())
    return watch.skip_step(loss, cat("this step changes ", watch.changes()));
  compare_processes(progress_.steps());  // the variables may be saved
  const int most = built_.options().on_nonfinite_restores;
  std::string newest;
  const auto tell_callbacks = [&](bool stops) {
    call("after_bad_step", step.step + 1, [&](Callback& c) {
      if (const std::string path = c.after_bad_step(trainer_, step, stops); !path.empty())
        newest = path;
    });
    newest = of_any_process(built_.processes(), newest);
  };
  if (policy == OnNonfinite::kRestore && restores_ < most) tell_callbacks(false);
  if (newest.empty()) {
    if (policy == OnNonfinite::kRestore && built_.graph().process().rank == 0)
      log_warning(restores_ < most ? "there is no checkpoint yet to restore"
                                   : cat("variables were restored as often as ",
                                         option_name("on_nonfinite_restores"), " allows"));
    tell_callbacks(true);
    return watch.look_at_step(loss, finite, applied_);
  }
  const std::uint64_t runs = built_.session().step();  // random numbers continue, too
  restore_checkpoint(built_.session(), newest, local_file_system(),
                     {.optional = loss_scale_names(), .strict = true});
  built_.session().set_step(runs);
  ++restores_;
  watch.skip_step(loss, cat("the variables are those of ", newest, " again"));
}

// Whether the update of a finite step made values that are not. All processes find the same.
bool TrainingLoop::has_overflowed() {
  if (!built_.guards() || !applied_) return false;
  bool may = false;
  for (std::size_t l = 0; l < built_.nodes().losses.size(); ++l)
    may = may || record_.watch().update_may_overflow(l, record_.rate_of_loss(l));
  return may && !of_any_process(built_.processes(), bad_variable(built_)).empty();
}

void TrainingLoop::run_batches(Source& source, Trace* trace) {
  const std::int64_t count = built_.batches().batches_per_step(), number = progress_.steps() + 1;
  const std::int64_t every = built_.options().op_hashes_every;
  const auto hashes = every > 0 && number % every == 0 ? std::make_shared<OutputHashes>() : nullptr;
  record_.note_op_hashes(hashes);
  totals_.clear();
  for (std::int64_t b = 0; b < count; ++b) {
    activity_.enter({.what = TrainingActivity::What::kInput, .step = number});
    Batch& batch = source.input->next();
    activity_.enter({.what = TrainingActivity::What::kStep, .step = number});
    applied_ = true;
    updated_.clear();
    std::span<TrainingStep> runs = built_.steps().of(batch, count);
    for (std::size_t l = 0; l < runs.size(); ++l) {
      const bool is_last = b + 1 == count && l + 1 == runs.size();
      const RunOptions how{.trace = is_last ? trace : nullptr,
                           .watch = is_last ? hashes.get() : nullptr};
      if (!run_loss(runs[l], l, batch, how)) runs = runs.first(l + 1);
    }
    record_.note_runs(runs);
    totals_.add(1, [&](std::span<double> numbers) { numbers_of_runs(runs, numbers); });
    add_scores_of_runs(runs, totals_.scores());
  }
  totals_.gather_scores(built_.processes());
  totals_.finish(record_.values_of_step());
}

// Runs a batch for one of the losses, or for the only one. Whether the step continues with the
// next: not if this one was not finite, and its step is to be undone.
bool TrainingLoop::run_loss(TrainingStep& run, std::size_t number, Batch& batch, RunOptions how) {
  Session& session = built_.session();
  // The first run has counted the step, whose random numbers are those of all its runs.
  if (number > 0) session.set_step(session.step() - 1);
  const TrainedLoss& loss = built_.nodes().losses[number];
  const double rate = record_.rate_of_loss(number);
  run.run(number == 0 ? std::move(batch.staged) : run.stage(batch.tensors), batch.tensors, rate,
          how);
  applied_ = applied_ && run.applied();
  if (!loss.name.empty() && run.applied()) updated_.push_back(loss.name);
  // All processes find the same here. If the run was not finite, and there is a guard, the
  // variables are still those before it, so that it can be repeated to see which op is at fault.
  const bool finite = std::isfinite(run.loss()) && (run.applied() || built_.nodes().loss_scale);
  record_.watch().look_at_batch(batch, number, finite, run.applied());
  const StepRequest asked = run.requested();
  if (built_.processes()) note_losses(run);
  if (asked.hashes_differ) require_equal_hashes();
  if (asked.signal != 0) end_by(asked.signal);
  stopped_ = stopped_ || asked.stop;
  comparison_due_ = comparison_due_ || asked.comparison;
  const OnNonfinite policy = built_.options().on_nonfinite;
  return finite || !built_.guards() || policy == OnNonfinite::kSkip;
}

}  // namespace belfry
