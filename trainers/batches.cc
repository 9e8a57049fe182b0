#include "belfry/trainers/batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "belfry/framework/error.h"
#include "belfry/trainers/counter_random_impl.h"

namespace belfry {

BatchPlan::BatchPlan(std::int64_t samples, std::int64_t towers, std::int64_t batch_size,
                     std::uint64_t seed)
    : samples_(samples), towers_(towers), batch_size_(batch_size), seed_(seed) {
  require(towers >= 1, "batches need at least one tower, not ", towers);
  require(batch_size >= 1, "--batch_size=", batch_size, ": it must be at least 1");
  const std::int64_t most = samples / towers;
  const std::string advice = most > 0 ? cat("--batch_size can be at most ", most)
                                      : cat("use at most ", samples, " devices, or more data");
  require(batch_size <= most, "--batch_size=", batch_size, " on each of ", towers,
          " devices needs more samples in one step than the ", samples, " of the data: ", advice);
}

void BatchPlan::shuffle(std::int64_t epoch, std::span<std::int64_t> order) const {
  require(std::ssize(order) == samples_, "an order of ", order.size(), " elements for ", samples_,
          " samples");
  std::iota(order.begin(), order.end(), std::int64_t{0});
  CounterRandom random(combine_key(seed_, static_cast<std::uint64_t>(epoch)));
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
}

std::span<const std::int64_t> BatchPlan::rows(std::span<const std::int64_t> order,
                                              std::int64_t step, std::int64_t tower) const {
  require(step >= 0 && step < steps_per_epoch(), "step ", step, " of an epoch of ",
          steps_per_epoch());
  require(tower >= 0 && tower < towers_, "tower ", tower, " of ", towers_);
  return order.subspan(static_cast<std::size_t>(step * global_batch() + tower * batch_size_),
                       static_cast<std::size_t>(batch_size_));
}

BatchPlan::Position BatchPlan::position(std::int64_t samples_consumed) const {
  require(samples_consumed >= 0 && samples_consumed % global_batch() == 0, "an input position of ",
          samples_consumed, " samples is not a whole number of global batches of ", global_batch(),
          ": continue with the --batch_size and number of devices that the run had");
  const std::int64_t step = samples_consumed / global_batch();
  return {.epoch = step / steps_per_epoch(), .step = step % steps_per_epoch()};
}

std::int64_t BatchPlan::samples_before(Position position) const {
  return (position.epoch * steps_per_epoch() + position.step) * global_batch();
}

EvaluationPlan::EvaluationPlan(std::int64_t samples, std::int64_t batch_size)
    : batch_size_(batch_size) {
  require(samples >= 0, "cannot evaluate ", samples, " samples");
  require(batch_size >= 1, "an evaluation batch of ", batch_size, ": it must be at least 1");
  order_.resize(static_cast<std::size_t>(samples));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
}

std::int64_t EvaluationPlan::batches() const {
  return std::ssize(order_) / batch_size_ + (std::ssize(order_) % batch_size_ != 0);
}

std::span<const std::int64_t> EvaluationPlan::rows(std::int64_t i) const {
  require(i >= 0 && i < batches(), "batch ", i, " of ", batches());
  const std::int64_t from = i * batch_size_;
  const std::int64_t count = std::min(batch_size_, std::ssize(order_) - from);
  return std::span(order_).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count));
}

}  // namespace belfry
