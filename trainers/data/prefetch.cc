#include "belfry/trainers/data/prefetch.h"

#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/threads.h"

namespace belfry {

Prefetcher::Prefetcher(const Dataset& dataset, const BatchPlan& plan, BatchPlan::Position start,
                       std::int64_t slots, std::optional<std::int64_t> tower, Stage stage)
    : dataset_(dataset),
      plan_(plan),
      start_(start),
      first_tower_(tower.value_or(0)),
      towers_(tower ? 1 : plan.towers()),
      stage_(std::move(stage)) {
  require(first_tower_ >= 0 && first_tower_ < plan.towers(), "tower ", first_tower_, " of ",
          plan.towers());
  require(start.step >= 0 && start.step < plan.steps_per_epoch(), "step ", start.step,
          " of an epoch of ", plan.steps_per_epoch());
  require(slots >= 2, "prefetching needs at least 2 slots, not ", slots);
  require(dataset.size() == plan.samples(), "a plan for ", plan.samples(),
          " samples was given a dataset of ", dataset.size());
  slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : slots_)
    for (std::size_t form = 0; form < plan.forms().size(); ++form)
      slot.places.push_back(make_place(form));
  order_.resize(static_cast<std::size_t>(plan.order_size()));
  thread_ = start_thread(
      {"the input of " + (tower ? cat("tower ", *tower) : "all towers"), "close other programs"},
      [this](std::stop_token stop) { produce(stop); });
}

Prefetcher::~Prefetcher() = default;

Prefetcher::Place Prefetcher::make_place(std::size_t form) const {
  Place place{.batch = {.form = form}};
  const std::vector<std::int64_t>& rows = plan_.forms()[form].rows;
  for (std::int64_t t = 0; t < towers_; ++t)
    for (Tensor& tensor : batch_tensors(dataset_, rows[static_cast<std::size_t>(first_tower_ + t)]))
      place.batch.tensors.push_back(std::move(tensor));
  place.batch.fields = std::ssize(place.batch.tensors) / towers_;
  place.memory.resize(place.batch.tensors.size());
  refresh(place);
  return place;
}

void Prefetcher::refresh(Place& place) {
  for (std::size_t i = 0; i < place.memory.size(); ++i)
    place.memory[i] = place.batch.tensors[i].mutable_raw();
}

Batch& Prefetcher::next() {
  if (holding_) {
    Place& place = slot(recycled_).place();
    refresh(place);
    place.batch.staged.reset();
  }
  std::unique_lock lock(mutex_);
  if (holding_) {
    holding_ = false;
    ++recycled_;
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return filled_ > recycled_ || failure_; });
  if (filled_ == recycled_) std::rethrow_exception(failure_);
  holding_ = true;
  return slot(recycled_).place().batch;
}

void Prefetcher::fill(Slot& slot, BatchPlan::Position position) {
  slot.form = plan_.form_of(position.step);
  Place& place = slot.place();
  Batch& batch = place.batch;
  batch.position = position;
  const auto fields = static_cast<std::size_t>(batch.fields);
  for (std::int64_t t = 0; t < towers_; ++t) {
    const std::span<const std::int64_t> rows = plan_.rows(order_, position.step, first_tower_ + t);
    if (rows.empty()) continue;
    dataset_.gather(rows,
                    std::span(place.memory).subspan(static_cast<std::size_t>(t) * fields, fields));
  }
}

void Prefetcher::produce(std::stop_token stop) {
  try {
    BatchPlan::Position position = start_;
    plan_.shuffle(position.epoch, order_);
    for (std::int64_t made = 0;; ++made) {
      {
        std::unique_lock lock(mutex_);
        const auto has_room = [&] { return made - recycled_ < std::ssize(slots_); };
        if (!changed_.wait(lock, stop, has_room)) return;
      }
      if (stop.stop_requested()) return;
      fill(slot(made), position);
      if (stage_) {
        Batch& batch = slot(made).place().batch;
        batch.staged = stage_(batch, stop);
        if (stop.stop_requested()) return;
      }
      {
        const std::lock_guard lock(mutex_);
        ++filled_;
        changed_.notify_all();
      }
      if (++position.step == plan_.steps_per_epoch()) {
        position = {.epoch = position.epoch + 1, .step = 0};
        plan_.shuffle(position.epoch, order_);
      }
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
