#include "belfry/trainers/data/prefetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/profiler_range.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/tensor_memory.h"
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
                       int workers, std::shared_ptr<Allocator> memory)
    : dataset_(dataset),
      batch_plan_(plan),
      buckets_(dataset.buckets()),
      first_tower_(towers ? towers->first : 0),
      towers_(towers ? towers->count : plan.towers()),
      stage_(std::move(stage)),
      memory_(std::move(memory)),
      gatherer_(dataset, workers, input_name(plan, towers), most_rows(plan)),
      position_(start) {
  require(first_tower_ >= 0 && first_tower_ + towers_ <= plan.towers(), "tower ", first_tower_,
          " of ", plan.towers());
  require(start.batch >= 0 && start.batch < plan.batches_per_epoch(), "batch ", start.batch,
          " of an epoch of ", plan.batches_per_epoch());
  require(slots >= 2, "prefetching needs at least 2 slots, not ", slots);
  require(dataset.size() == plan.samples(), "a plan for ", plan.samples(),
          " samples was given a dataset of ", dataset.size());
  // is_at_end() may gather a batch while the consumer has another.
  constexpr std::int64_t kSlotsWithoutWorkers = 2;
  slots_.resize(static_cast<std::size_t>(workers > 0 ? slots : kSlotsWithoutWorkers));
  for (Slot& slot : slots_)
    for (std::size_t form = 0; form < plan.forms().size(); ++form)
      slot.batches.push_back(make_form_batch(form));
  order_.resize(static_cast<std::size_t>(plan.order_size()));
  if (buckets_) longest_ = batch_tensors(dataset, most_rows(plan));
  if (workers > 0)
    thread_ = start_thread({input_name(plan, towers), "close other programs"},
                           [this](std::stop_token stop) { make_all(std::move(stop)); });
}

Prefetcher::~Prefetcher() = default;

Prefetcher::FormBatch Prefetcher::make_form_batch(std::size_t form) const {
  const TensorMemory memory(memory_);
  FormBatch made{.batch = {.form = form}};
  const BatchForm& layout = batch_plan_.forms()[form];
  std::vector<Dataset::Field> fields = dataset_.signature();
  if (buckets_) fields = fields_in_bucket(std::move(fields), *buckets_, layout.bucket);
  for (std::int64_t t = 0; t < towers_; ++t)
    for (Tensor& tensor :
         batch_tensors(fields, layout.rows[static_cast<std::size_t>(first_tower_ + t)]))
      made.batch.tensors.push_back(std::move(tensor));
  made.batch.fields = std::ssize(made.batch.tensors) / towers_;
  made.memory.resize(made.batch.tensors.size());
  refresh(made);
  return made;
}

void Prefetcher::refresh(FormBatch& batch) const {
  const TensorMemory memory(memory_);
  for (std::size_t i = 0; i < batch.memory.size(); ++i)
    batch.memory[i] = batch.batch.tensors[i].mutable_raw();
}

Batch& Prefetcher::next() {
  if (holding_) {
    FormBatch& batch = slot(recycled_).filled();
    refresh(batch);
    batch.batch.staged.reset();
    holding_ = false;
    const std::lock_guard lock(mutex_);
    ++recycled_;
    changed_.notify_all();
  }
  if (!has_next()) std::rethrow_exception(failure_);
  holding_ = true;
  return slot(recycled_).filled().batch;
}

// Waits for the batch after those that the consumer has taken; without a thread, makes it. If there
// is none, failure_ says why.
bool Prefetcher::has_next() {
  const std::int64_t taken = recycled_ + (holding_ ? 1 : 0);
  if (!thread_.joinable() && ready_ == taken && !failure_) make_next({});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ > taken || failure_; });
  return ready_ > taken;
}

bool Prefetcher::is_at_end() {
  if (has_next()) return false;
  try {
    std::rethrow_exception(failure_);
  } catch (const EndOfStream&) {
    return true;
  } catch (...) {
    return false;  // next() throws it
  }
}

void Prefetcher::fill(Slot& slot, BatchPlan::Position position) {
  static const RangeName kGatherBatch("gather batch");
  const ProfilerRange range(kGatherBatch);
  slot.form = batch_plan_.form_of(position.batch);
  FormBatch& filled = slot.filled();
  Batch& batch = filled.batch;
  batch.position = position;
  const auto fields = static_cast<std::size_t>(batch.fields);
  for (std::int64_t t = 0; t < towers_; ++t) {
    const std::span<const std::int64_t> rows =
        batch_plan_.rows(order_, position.batch, first_tower_ + t);
    if (rows.empty()) continue;
    const std::size_t first = static_cast<std::size_t>(t) * fields;
    gather({batch_plan_.seed(), position.epoch}, rows,
           std::span(filled.memory).subspan(first, fields),
           std::span(batch.tensors).subspan(first, fields));
  }
}

// Samples of a short bucket are gathered in their full length, and cut.
void Prefetcher::gather(const DataPass& pass, std::span<const std::int64_t> rows,
                        std::span<std::byte* const> out, std::span<const Tensor> tensors) {
  if (!buckets_) return gatherer_.gather(pass, rows, out);
  std::vector<std::byte*> whole;
  for (Tensor& tensor : longest_) whole.push_back(tensor.mutable_raw());
  gatherer_.gather(pass, rows, whole);
  for (std::size_t f = 0; f < out.size(); ++f) {
    const auto row_bytes = [](const Tensor& tensor) {
      return tensor.bytes() / static_cast<std::size_t>(tensor.shape()[0]);
    };
    const std::size_t from = row_bytes(longest_[f]), to = row_bytes(tensors[f]);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(out[f] + i * to, whole[f] + i * from, to);
  }
}

// Gathers and stages the next batch. Whether it is ready: not after a failure, or if a stop is
// requested.
bool Prefetcher::make_next(std::stop_token stop) try {
  if (shuffled_ != position_.epoch) batch_plan_.shuffle(position_.epoch, order_);
  shuffled_ = position_.epoch;
  fill(slot(ready_), position_);
  if (++position_.batch == batch_plan_.batches_per_epoch())
    position_ = {.epoch = position_.epoch + 1, .batch = 0};
  Batch& batch = slot(ready_).filled().batch;
  if (stage_) batch.staged = stage_(batch, stop);
  if (stop.stop_requested()) return false;
  const std::lock_guard lock(mutex_);
  ++ready_;
  changed_.notify_all();
  return true;
} catch (...) {
  const std::lock_guard lock(mutex_);
  failure_ = std::current_exception();
  changed_.notify_all();
  return false;
}

void Prefetcher::make_all(std::stop_token stop) {
  do {
    std::unique_lock lock(mutex_);
    const auto has_room = [this] { return ready_ - recycled_ < std::ssize(slots_); };
    if (!changed_.wait(lock, stop, has_room)) return;
  } while (!stop.stop_requested() && make_next(stop));
}

std::int64_t bytes_of_batch(const Dataset& dataset, std::int64_t samples) {
  std::int64_t bytes = 0;
  for (const Dataset::Field& field : dataset.signature())
    bytes += samples * field.shape.elements() * static_cast<std::int64_t>(size_of(field.dtype));
  return bytes;
}

}  // namespace belfry
