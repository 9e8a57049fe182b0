// Which samples each step of training and evaluation takes: a function of the numbers below alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace belfry {

// Training: an epoch is one pass over the data in random order, in steps of one global batch, which
// is `towers` times `batch_size` samples. What does not fill a last global batch is dropped; since
// the order differs, other samples in each epoch. Epochs and steps count from 0.
class BatchPlan {
 public:
  struct Position {
    std::int64_t epoch;
    std::int64_t step;  // in its epoch
    bool operator==(const Position&) const = default;
  };

  // `batch_size` is per tower. Throws InvalidArgument, in terms of --batch_size, unless a global
  // batch has 1 to `samples` samples.
  BatchPlan(std::int64_t samples, std::int64_t towers, std::int64_t batch_size, std::uint64_t seed);

  std::int64_t samples() const { return samples_; }
  std::int64_t towers() const { return towers_; }
  std::int64_t batch_size() const { return batch_size_; }
  std::int64_t global_batch() const { return towers_ * batch_size_; }
  std::int64_t steps_per_epoch() const { return samples_ / global_batch(); }
  std::int64_t dropped_per_epoch() const { return samples_ % global_batch(); }

  // Fills `order`, of samples() elements, with the permutation of `epoch`: Fisher-Yates on the
  // stream of (seed, epoch). Allocates nothing.
  void shuffle(std::int64_t epoch, std::span<std::int64_t> order) const;

  // The samples that tower `tower` gets in `step`: elements [tower * batch_size, ...) of global
  // batch `step` of `order`.
  std::span<const std::int64_t> rows(std::span<const std::int64_t> order, std::int64_t step,
                                     std::int64_t tower) const;

  // Positions are kept as the number of samples consumed since the start of training. Throws
  // InvalidArgument unless that is a whole number of global batches.
  Position position(std::int64_t samples_consumed) const;
  // Samples consumed before the step at `position`.
  std::int64_t samples_before(Position position) const;

 private:
  std::int64_t samples_, towers_, batch_size_;
  std::uint64_t seed_;
};

// Evaluation: samples 0 to samples - 1 in order, each exactly once, the last batch perhaps short.
class EvaluationPlan {
 public:
  // Throws InvalidArgument unless samples >= 0 and batch_size >= 1.
  EvaluationPlan(std::int64_t samples, std::int64_t batch_size);

  std::int64_t batches() const;
  // The samples of batch i; valid while the plan lives.
  std::span<const std::int64_t> rows(std::int64_t i) const;

 private:
  std::int64_t batch_size_;
  std::vector<std::int64_t> order_;
};

}  // namespace belfry
