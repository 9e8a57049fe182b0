#include "belfry/trainers/data/prefetch.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"

namespace belfry {
namespace {

std::string input_name(const BatchPlan& plan, const std::optional<TowerSpan>& towers) {
  if (!towers || towers->count == plan.towers()) return "the input of all towers";
  if (towers->count == 1) return cat("the input of tower ", towers->first);
  return cat("the input of towers ", towers->first, " to ", towers->first + towers->count - 1);
}

// The most samples of a tower in a batch.
std::int64_t most_rows(const BatchPlan& plan) {
  std::int64_t most = 0;
  for (const BatchForm& form : plan.forms()) most = std::max(most, std::ranges::max(form.rows));
  return most;
}

}  // namespace

Prefetcher::Prefetcher(const Dataset& dataset, const BatchPlan& plan, BatchPlan::Position start,
                       std::int64_t slots, std::optional<TowerSpan> towers, Stage stage,
                       int workers)
    : dataset_(dataset),
      batch_plan_(plan),
      start_(start),
      first_tower_(towers ? towers->first : 0),
      towers_(towers ? towers->count : plan.towers()),
      stage_(std::move(stage)),
      gatherer_(dataset, workers, input_name(plan, towers), most_rows(plan)) {
  require(first_tower_ >= 0 && first_tower_ + towers_ <= plan.towers(), "tower ", first_tower_,
          " of ", plan.towers());
  require(start.batch >= 0 && start.batch < plan.batches_per_epoch(), "batch ", start.batch,
          " of an epoch of ", plan.batches_per_epoch());
  require(slots >= 2, "prefetching needs at least 2 slots, not ", slots);
  require(dataset.size() == plan.samples(), "a plan for ", plan.samples(),
          " samples was given a dataset of ", dataset.size());
  slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : slots_)
    for (std::size_t form = 0; form < plan.forms().size(); ++form)
      slot.batches.push_back(make_form_batch(form));
  order_.resize(static_cast<std::size_t>(plan.order_size()));
  const std::string what = input_name(plan, towers);
  gatherer_thread_ = start_thread({what, "close other programs"},
                                  [this](std::stop_token stop) { gather_all(std::move(stop)); });
  if (stage_)
    stager_thread_ = start_thread({"staging " + what, "close other programs"},
                                  [this](std::stop_token stop) { stage_all(std::move(stop)); });
}

Prefetcher::~Prefetcher() = default;

Prefetcher::FormBatch Prefetcher::make_form_batch(std::size_t form) const {
  FormBatch made{.batch = {.form = form}};
  const std::vector<std::int64_t>& rows = batch_plan_.forms()[form].rows;
  for (std::int64_t t = 0; t < towers_; ++t)
    for (Tensor& tensor : batch_tensors(dataset_, rows[static_cast<std::size_t>(first_tower_ + t)]))
      made.batch.tensors.push_back(std::move(tensor));
  made.batch.fields = std::ssize(made.batch.tensors) / towers_;
  made.memory.resize(made.batch.tensors.size());
  refresh(made);
  return made;
}

void Prefetcher::refresh(FormBatch& batch) {
  for (std::size_t i = 0; i < batch.memory.size(); ++i)
    batch.memory[i] = batch.batch.tensors[i].mutable_raw();
}

Batch& Prefetcher::next() {
  if (holding_) {
    FormBatch& batch = slot(recycled_).filled();
    refresh(batch);
    batch.batch.staged.reset();
  }
  std::unique_lock lock(mutex_);
  if (holding_) {
    holding_ = false;
    ++recycled_;
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return ready_ > recycled_ || failure_; });
  if (ready_ == recycled_) std::rethrow_exception(failure_);
  holding_ = true;
  return slot(recycled_).filled().batch;
}

void Prefetcher::fill(Slot& slot, BatchPlan::Position position) {
  slot.form = batch_plan_.form_of(position.batch);
  FormBatch& filled = slot.filled();
  Batch& batch = filled.batch;
  batch.position = position;
  const auto fields = static_cast<std::size_t>(batch.fields);
  for (std::int64_t t = 0; t < towers_; ++t) {
    const std::span<const std::int64_t> rows =
        batch_plan_.rows(order_, position.batch, first_tower_ + t);
    if (rows.empty()) continue;
    gatherer_.gather(
        DataPass{batch_plan_.seed(), position.epoch}, rows,
        std::span(filled.memory).subspan(static_cast<std::size_t>(t) * fields, fields));
  }
}

void Prefetcher::gather_all(std::stop_token stop) {
  try {
    BatchPlan::Position position = start_;
    batch_plan_.shuffle(position.epoch, order_);
    for (std::int64_t made = 0;; ++made) {
      {
        std::unique_lock lock(mutex_);
        const auto has_room = [&] { return made - recycled_ < std::ssize(slots_); };
        if (!changed_.wait(lock, stop, has_room)) return;
      }
      if (stop.stop_requested()) return;
      fill(slot(made), position);
      {
        const std::lock_guard lock(mutex_);
        ++gathered_;
        if (!stage_) ++ready_;
        changed_.notify_all();
      }
      if (++position.batch == batch_plan_.batches_per_epoch()) {
        position = {.epoch = position.epoch + 1, .batch = 0};
        batch_plan_.shuffle(position.epoch, order_);
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    (stage_ ? gather_failure_ : failure_) = std::current_exception();
    changed_.notify_all();
  }
}

void Prefetcher::stage_all(std::stop_token stop) {
  try {
    for (std::int64_t staged = 0;; ++staged) {
      {
        std::unique_lock lock(mutex_);
        const auto has_more = [&] { return gathered_ > staged || gather_failure_; };
        if (!changed_.wait(lock, stop, has_more)) return;
        if (gathered_ == staged) std::rethrow_exception(gather_failure_);
      }
      Batch& batch = slot(staged).filled().batch;
      batch.staged = stage_(batch, stop);
      if (stop.stop_requested()) return;
      const std::lock_guard lock(mutex_);
      ++ready_;
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

std::int64_t bytes_of_batch(const Dataset& dataset, std::int64_t samples) {
  std::int64_t bytes = 0;
  for (const Dataset::Field& field : dataset.signature())
    bytes += samples * field.shape.elements() * static_cast<std::int64_t>(size_of(field.dtype));
  return bytes;
}

}  // namespace belfry
