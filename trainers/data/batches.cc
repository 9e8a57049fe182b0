#include "belfry/trainers/data/batches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

constexpr std::pair<Uneven, const char*> kNames[] = {{Uneven::kDrop, "drop"},
                                                     {Uneven::kPad, "pad"},
                                                     {Uneven::kWeight, "weight"},
                                                     {Uneven::kError, "error"}};

__extension__ using Wide = __int128;  // products of samples and weights

// Weights as whole numbers of billionths.
std::vector<Wide> whole_weights(std::int64_t towers, std::span<const double> weights) {
  if (weights.empty()) return std::vector<Wide>(static_cast<std::size_t>(towers), 1);
  require_option(std::ssize(weights) == towers, "tower_weights", " has ", weights.size(),
                 " where there are ", towers, " devices; give one weight for each");
  std::vector<Wide> result;
  for (const double weight : weights) {
    require_option(weight >= 1e-9 && weight <= 1e6, "tower_weights", ": ", weight,
                   " is not a number from 1e-9 to 1e6");
    result.push_back(std::llround(weight * 1e9));
  }
  return result;
}

std::vector<std::int64_t> begins_of(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::int64_t{0});
  return begins;
}

// The form of a batch whose samples go to the first towers, up to their shares.
BatchForm padded_form(std::int64_t samples, const BatchForm& full) {
  BatchForm form = full;
  for (std::size_t t = 0; t < full.samples.size(); ++t) {
    form.samples[t] = std::clamp(samples - full.begins[t], std::int64_t{0}, full.samples[t]);
    if (form.samples[t] > 0) form.rows[t] = form.samples[t];
  }
  return form;
}

}  // namespace

std::string_view name_of(Uneven uneven) {
  return std::ranges::find(kNames, uneven, &std::pair<Uneven, const char*>::first)->second;
}

Uneven find_uneven(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [value, known] : kNames) {
    if (name == known) return value;
    names.emplace_back(known);
  }
  throw InvalidArgument(cat("'", name, "' is not a way to take batches that do not come out even",
                            did_you_mean(name, names), " (there are ", join(names), ")"));
}

std::vector<std::int64_t> divide_samples(std::int64_t total, std::int64_t towers,
                                         std::span<const double> weights) {
  const std::vector<Wide> shares = whole_weights(towers, weights);
  const Wide sum = std::accumulate(shares.begin(), shares.end(), Wide(0));
  std::vector<std::int64_t> result;
  std::vector<std::pair<Wide, std::size_t>> remainders;  // negative, so that the largest is first
  for (std::size_t t = 0; t < shares.size(); ++t) {
    result.push_back(static_cast<std::int64_t>(total * shares[t] / sum));
    remainders.emplace_back(-(total * shares[t] % sum), t);
  }
  std::ranges::sort(remainders);
  const std::int64_t left = total - std::accumulate(result.begin(), result.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i) ++result[remainders[static_cast<std::size_t>(i)].second];
  return result;
}

bool BatchForm::equal() const {
  return std::ranges::all_of(samples, [&](std::int64_t n) { return n == samples[0]; });
}

std::int64_t BatchForm::total() const {
  return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
}

std::string BatchForm::str() const { return equal() ? cat(samples[0]) : join(samples, " + "); }

BatchForm BatchForm::of_tower(std::size_t t) const {
  return {.samples = {samples[t]}, .rows = {rows[t]}, .begins = {0}, .bucket = bucket};
}

BatchForm BatchForm::of_towers(std::size_t first, std::size_t count) const {
  const auto some = [&](const std::vector<std::int64_t>& all) {
    const std::span<const std::int64_t> part = std::span(all).subspan(first, count);
    return std::vector(part.begin(), part.end());
  };
  return {.samples = some(samples), .rows = some(rows), .begins = some(begins), .bucket = bucket};
}

BatchPlan::BatchPlan(std::int64_t samples, std::int64_t towers, std::int64_t batch_size,
                     std::uint64_t seed, const BatchOptions& options,
                     std::vector<std::uint8_t> buckets)
    : samples_(samples),
      towers_(towers),
      batch_size_(batch_size),
      per_step_(options.gradient_accumulation_steps),
      seed_(seed),
      buckets_(std::move(buckets)) {
  require(buckets_.empty() || std::ssize(buckets_) == samples, "there are ", samples,
          " samples, and buckets of ", buckets_.size());
  check_sizes(options);
  BatchForm full{.samples = divide_samples(global_batch(), towers, options.tower_weights)};
  full.rows = full.samples;
  full.begins = begins_of(full.samples);
  const std::string name = options.global ? "global_batch_size" : "batch_size";
  for (std::size_t t = 0; t < full.samples.size(); ++t)
    require_option(full.samples[t] > 0, "tower_weights", ": tower ", t, " would get none of the ",
                   global_batch(), " samples of a batch; use a larger weight or ", name);
  batches_ = samples / samples_per_step() * per_step_;
  if (batches_ > 0) add_full_forms(full);
  if (samples % samples_per_step() > 0 && makes_unequal(options.uneven))
    add_ragged_form(full, options);
  const bool fills = options.uneven == Uneven::kPad || options.feeds_every_tower;
  order_size_ = std::max(samples, fills ? batches_ * global_batch() : 0);
}

void BatchPlan::check_sizes(const BatchOptions& options) const {
  require(towers_ >= 1, "batches need at least one tower, not ", towers_);
  require_option(batch_size_ >= 1, "batch_size", "=", batch_size_, ": it must be at least 1");
  require(samples_ >= 1, "there are ", samples_, " samples to train with; at least 1 is needed");
  check_accumulation(options);
  const std::int64_t most = makes_unequal(options.uneven)
                                ? std::numeric_limits<std::int64_t>::max() / towers_
                                : samples_ / towers_;
  const std::string name = options.global ? "global_batch_size" : "batch_size";
  const std::int64_t each = options.global ? towers_ : 1;
  const std::string advice =
      most > 0
          ? cat(name, " can be at most ", most * each)
          : cat("use at most ", samples_, samples_ == 1 ? " device" : " devices", ", or more data");
  require_option<OptionMistake>(batch_size_ <= most, name, "=", batch_size_ * each,
                                options.global ? " on " : " on each of ", towers_,
                                " devices needs more samples in one step than the ", samples_,
                                " of the data: ", advice);
  const std::int64_t batches = samples_ / global_batch();
  require_option<OptionMistake>(makes_unequal(options.uneven) || per_step_ <= batches,
                                "gradient_accumulation_steps", "=", per_step_,
                                ": a step takes so many batches of ", global_batch(),
                                " samples, and the ", samples_, " of the data have only ", batches,
                                "; use at most ", batches, ", smaller batches, or more data");
  const std::int64_t left = samples_ % samples_per_step();
  require_option<OptionMistake>(
      options.uneven != Uneven::kError || left == 0, "uneven", "=error: the ", samples_,
      " samples of the data fill ", samples_ / samples_per_step(),
      per_step_ == 1 ? " batches of " : " steps of ", samples_per_step(), " (", batch_size_,
      " on each of ", towers_, " devices", per_step_ == 1 ? "" : cat(", ", per_step_, " times"),
      ") and leave ", left, " over; another ", name, ", or uneven=drop",
      per_step_ == 1 ? ", weight or pad, would take them" : ", would do");
}

void BatchPlan::check_accumulation(const BatchOptions& options) const {
  require_option(per_step_ == 1 || buckets_.empty(), "gradient_accumulation_steps", "=", per_step_,
                 " takes the mean over batches of one size, and these data make batches by their "
                 "lengths; use 1");
  require_option(per_step_ >= 1, "gradient_accumulation_steps", "=", per_step_,
                 ": a step takes at least 1 batch");
  require_option(per_step_ == 1 || !makes_unequal(options.uneven), "gradient_accumulation_steps",
                 "=", per_step_,
                 " takes the mean over batches of one size, and uneven=", name_of(options.uneven),
                 " makes a smaller last one; use uneven=drop or error");
}

// Counts as sort_by_bucket() sorts.
void BatchPlan::add_full_forms(const BatchForm& full) {
  if (buckets_.empty()) return forms_.push_back(full);
  std::vector<std::int64_t> counts(std::size_t{std::ranges::max(buckets_)} + 1);
  for (const std::uint8_t bucket : buckets_) ++counts[bucket];
  for (std::size_t b = 0; b + 1 < counts.size(); ++b) {
    const std::int64_t left = counts[b] % global_batch();
    counts[b] -= left;
    counts[b + 1] += left;
  }
  for (std::size_t b = counts.size(); b-- > 0;) {
    const std::int64_t batches = counts[b] / global_batch();
    if (batches == 0) continue;
    form_order_.insert(form_order_.end(), static_cast<std::size_t>(batches),
                       static_cast<std::uint8_t>(forms_.size()));
    forms_.push_back(full);
    forms_.back().bucket = b;
  }
  constexpr std::uint64_t kOrderOfForms = 0x6275636b657473;  // other numbers than those of epochs
  CounterRandom random(combine_key(seed_, kOrderOfForms));
  for (std::size_t i = form_order_.size(); i > 1; --i)
    std::swap(form_order_[i - 1], form_order_[static_cast<std::size_t>(random.below(i))]);
}

void BatchPlan::add_ragged_form(const BatchForm& full, const BatchOptions& options) {
  const std::int64_t left = samples_ % global_batch();
  has_ragged_ = true;
  ++batches_;
  if (options.uneven == Uneven::kPad) {
    forms_.push_back(padded_form(left, full));
  } else {
    BatchForm form{.samples = divide_samples(left, towers_, options.tower_weights)};
    form.rows = form.samples;
    form.begins = begins_of(form.samples);
    if (options.feeds_every_tower) std::ranges::replace(form.rows, 0, 1);
    forms_.push_back(std::move(form));
  }
  if (!buckets_.empty()) forms_.back().bucket = std::ranges::max(buckets_);
}

std::size_t BatchPlan::form_of(std::int64_t batch) const {
  if (has_ragged_ && batch + 1 == batches_) return forms_.size() - 1;
  return form_order_.empty() ? 0 : form_order_[static_cast<std::size_t>(batch)];
}

// Keeps the order within a bucket, except that samples of shorter ones come first in it.
void BatchPlan::sort_by_bucket(std::span<std::int64_t> order) const {
  std::vector<std::vector<std::int64_t>> sorted(std::size_t{std::ranges::max(buckets_)} + 1);
  for (const std::int64_t sample : order)
    sorted[buckets_[static_cast<std::size_t>(sample)]].push_back(sample);
  for (std::size_t b = 0; b + 1 < sorted.size(); ++b) {
    const auto left = static_cast<std::ptrdiff_t>(std::ssize(sorted[b]) % global_batch());
    sorted[b + 1].insert(sorted[b + 1].begin(), sorted[b].end() - left, sorted[b].end());
    sorted[b].resize(sorted[b].size() - static_cast<std::size_t>(left));
  }
  std::vector<std::ptrdiff_t> taken(sorted.size());
  auto to = order.begin();
  const auto take = [&](std::size_t bucket, std::ptrdiff_t count) {
    to = std::copy_n(sorted[bucket].begin() + taken[bucket], count, to);
    taken[bucket] += count;
  };
  for (const std::uint8_t form : form_order_) take(forms_[form].bucket, global_batch());
  take(sorted.size() - 1, order.end() - to);
}

void BatchPlan::shuffle(std::int64_t epoch, std::span<std::int64_t> order) const {
  require(std::ssize(order) == order_size_, "an order of ", order.size(), " elements for ",
          order_size_, " samples");
  const auto samples = static_cast<std::size_t>(samples_);
  std::iota(order.begin(), order.begin() + samples_, std::int64_t{0});
  CounterRandom random(combine_key(seed_, static_cast<std::uint64_t>(epoch)));
  for (std::size_t i = samples; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
  if (!buckets_.empty()) sort_by_bucket(order.first(samples));
  for (std::size_t i = samples; i < order.size(); ++i) order[i] = order[i - samples];
}

std::span<const std::int64_t> BatchPlan::rows(std::span<const std::int64_t> order,
                                              std::int64_t batch, std::int64_t tower) const {
  require(batch >= 0 && batch < batches_, "batch ", batch, " of an epoch of ", batches_);
  require(tower >= 0 && tower < towers_, "tower ", tower, " of ", towers_);
  const BatchForm& form = forms_[form_of(batch)];
  const auto t = static_cast<std::size_t>(tower);
  return order.subspan(static_cast<std::size_t>(batch * global_batch() + form.begins[t]),
                       static_cast<std::size_t>(form.rows[t]));
}

EvaluationPlan::EvaluationPlan(std::int64_t samples, std::int64_t global_batch, std::int64_t shards,
                               std::int64_t towers) {
  require(samples >= 0, "cannot evaluate ", samples, " samples");
  require(towers >= 1 && global_batch >= towers && global_batch % towers == 0, "an evaluation of ",
          global_batch, " samples at once on ", towers, " devices");
  require(shards >= 1 && shards % towers == 0, shards, " shards on ", towers, " devices");
  order_.resize(static_cast<std::size_t>(samples));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  const std::int64_t unit = shards <= global_batch ? shards : towers;
  std::int64_t first = 0;
  const auto add = [&](std::int64_t block, bool is_divided) {
    const std::int64_t blocks = (samples - first) / block;
    if (blocks > 0) runs_.push_back({first, block, blocks, is_divided});
    first += blocks * block;
  };
  const auto most = static_cast<std::uint64_t>(global_batch / unit);
  for (auto each = static_cast<std::int64_t>(std::bit_floor(most)); each > 0; each /= 2)
    add(each * unit, true);
  add(1, false);
}

std::span<const std::int64_t> EvaluationPlan::rows(std::int64_t first, std::int64_t count) const {
  require(first >= 0 && count >= 0 && first <= samples() - count, count, " samples from ", first,
          " of ", samples());
  return std::span(order_).subspan(static_cast<std::size_t>(first),
                                   static_cast<std::size_t>(count));
}

}  // namespace belfry
