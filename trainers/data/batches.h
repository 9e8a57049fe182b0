// The samples of each step of training and evaluation, as a function of the numbers below alone.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// The treatment of an epoch's samples that do not fill a last global batch, and of a global batch
// that is larger than an epoch; --uneven.
enum class Uneven {
  kDrop,    // leaves the samples out; refuses the batch
  kPad,     // fills the last batch up with samples that do not count
  kWeight,  // the last batch is smaller
  kError,   // refuses both
};

// Whether towers may get batches of different sizes, or samples that do not count.
inline bool makes_unequal(Uneven uneven) {
  return uneven == Uneven::kPad || uneven == Uneven::kWeight;
}
// "drop".
std::string_view name_of(Uneven uneven);
// Throws InvalidArgument with all names and the nearest one.
Uneven find_uneven(std::string_view name);

// Divides `total` samples among towers in proportion to `weights` (none: equal ones) by largest
// remainders: tower t gets floor(total w_t / sum w). Each remaining sample goes to one of the
// towers with the largest remainders; of equal towers the first gets it. Exact for weights of up to
// nine digits after the point; later digits are rounded away. Throws OptionError naming
// tower_weights unless there are as many weights as towers, from 1e-9 to 1e6.
std::vector<std::int64_t> divide_samples(std::int64_t total, std::int64_t towers,
                                         std::span<const double> weights = {});

// How a step divides its batch among the towers.
struct BatchForm {
  std::vector<std::int64_t> samples;  // samples that count, per tower
  std::vector<std::int64_t> rows;     // rows that the tower is fed; some may not count
  std::vector<std::int64_t> begins;   // the first of its rows in the global batch
  std::size_t bucket = 0;             // of its samples (LengthBuckets)

  // Whether all towers have equally many samples that count.
  bool equal() const;
  std::int64_t total() const;  // samples that count
  std::string str() const;     // "8", or "6 + 3 + 3" where towers differ
  // Tower t's part, as a separate batch.
  BatchForm of_tower(std::size_t t) const;
  // The part of `count` towers from `first` on; rows begin at the same places as in the whole.
  BatchForm of_towers(std::size_t first, std::size_t count) const;
  bool operator==(const BatchForm&) const = default;
};

struct BatchOptions {
  Uneven uneven = Uneven::kDrop;
  std::vector<double> tower_weights = {};  // shares of the global batch; none: equal
  bool global = false;  // the user gave the global batch size, and errors speak of that
  // With kWeight: a tower without samples gets one that does not count, as with kPad, so that all
  // processes have equal plans.
  bool feeds_every_tower = false;
  // Global batches of a step, one after another: at least 1; exactly 1 with kPad and kWeight.
  int gradient_accumulation_steps = 1;
};

// Training: an epoch is one pass over the data in random order, in global batches of `towers` times
// `batch_size` samples, divided by divide_samples(). A step takes one global batch, or several, as
// BatchOptions say. Epochs, steps and batches count from 0. If the data do not fill the last step,
// its samples are
//   kDrop    left out; they differ between epochs, as the order does.
//   kWeight  divided like a global batch, so that towers get fewer, the last ones perhaps none.
//   kPad     given to the first towers, up to their shares. A tower for which none is left repeats
//            samples of the epoch, which do not count. (A tower for which too few are left takes
//            just those: its loss is one number, in which samples cannot be told apart.)
//
// With buckets of lengths, a batch has samples of one bucket. Samples that do not fill a last batch
// of their bucket go to the next longer one, so that no more are left over than without buckets.
// The order of the buckets is random, and the same in each epoch.
class BatchPlan {
 public:
  struct Position {
    std::int64_t epoch;
    std::int64_t batch;  // of its epoch
    bool operator==(const Position&) const = default;
  };

  // `batch_size` is per tower, on average. Throws InvalidArgument (OptionError about an option) if
  // there are no samples, a tower has no share of a global batch, or `options` refuse the samples
  // left over. `buckets`: of each sample, if there are some; a step then takes one batch.
  BatchPlan(std::int64_t samples, std::int64_t towers, std::int64_t batch_size, std::uint64_t seed,
            const BatchOptions& options = {}, std::vector<std::uint8_t> buckets = {});

  std::int64_t samples() const { return samples_; }
  std::int64_t towers() const { return towers_; }
  std::int64_t batch_size() const { return batch_size_; }
  std::uint64_t seed() const { return seed_; }
  std::int64_t global_batch() const { return towers_ * batch_size_; }
  std::int64_t batches_per_epoch() const { return batches_; }
  std::int64_t batches_per_step() const { return per_step_; }
  std::int64_t samples_per_step() const { return global_batch() * per_step_; }
  std::int64_t steps_per_epoch() const { return batches_ / per_step_; }
  // The samples that an epoch trains with, each once, and the samples that it leaves out.
  std::int64_t samples_per_epoch() const { return samples_ - dropped_per_epoch(); }
  std::int64_t dropped_per_epoch() const { return has_ragged_ ? 0 : samples_ % samples_per_step(); }

  // The forms of its batches: one for each bucket that fills a batch, the longest first, and one
  // more if the last batch of an epoch differs. form_of(): the index in forms() of the form of
  // batch number `batch` of an epoch.
  const std::vector<BatchForm>& forms() const { return forms_; }
  std::size_t form_of(std::int64_t batch) const;

  // Elements of an epoch's order: its samples, and the samples that fill its last batch up.
  std::int64_t order_size() const { return order_size_; }
  // Fills `order`, of order_size() elements, with the permutation of `epoch`, by Fisher-Yates on
  // the stream of (seed, epoch), and then by buckets; the rest repeats its beginning. Allocates
  // nothing without buckets.
  void shuffle(std::int64_t epoch, std::span<std::int64_t> order) const;

  // The samples that tower `tower` is fed in global batch `batch` of `order`.
  std::span<const std::int64_t> rows(std::span<const std::int64_t> order, std::int64_t batch,
                                     std::int64_t tower) const;

 private:
  void check_sizes(const BatchOptions& options) const;
  void check_accumulation(const BatchOptions& options) const;
  void add_full_forms(const BatchForm& full);
  void add_ragged_form(const BatchForm& full, const BatchOptions& options);
  void sort_by_bucket(std::span<std::int64_t> order) const;

  std::int64_t samples_, towers_, batch_size_, per_step_;
  std::uint64_t seed_;
  std::int64_t batches_ = 0, order_size_ = 0;
  bool has_ragged_ = false;  // the last batch has the last form
  std::vector<BatchForm> forms_;
  std::vector<std::uint8_t> buckets_;     // of samples; none without buckets
  std::vector<std::uint8_t> form_order_;  // with buckets: the forms of the full batches of an epoch
};

// Evaluation: samples 0 to samples - 1 in order, each exactly once, in blocks. A block gives every
// shard a power of two of samples, or it is one sample. So sums over blocks do not depend on the
// number of devices that have the shards.
class EvaluationPlan {
 public:
  struct Run {
    std::int64_t first;    // sample of the first block
    std::int64_t samples;  // of each block
    std::int64_t blocks;
    bool is_divided;  // among the devices; else one device takes it
  };

  // Blocks have at most `global_batch` samples, the largest first, in `shards` parts, or in
  // `towers` parts if the batch has fewer samples than shards. Throws InvalidArgument unless
  // samples >= 0, towers >= 1, and `global_batch` and `shards` are multiples of `towers`.
  EvaluationPlan(std::int64_t samples, std::int64_t global_batch, std::int64_t shards,
                 std::int64_t towers);

  std::span<const Run> runs() const { return runs_; }
  std::int64_t samples() const { return std::ssize(order_); }
  // The samples from `first` on; valid while the plan lives.
  std::span<const std::int64_t> rows(std::int64_t first, std::int64_t count) const;

 private:
  std::vector<std::int64_t> order_;
  std::vector<Run> runs_;
};

}  // namespace belfry
