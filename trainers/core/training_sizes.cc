#include "belfry/trainers/core/training_sizes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

int processes_of(const TrainerOptions& options) { return process_place(options.session).size; }

bool has_one_shard_each(const TrainerOptions& options, const TrainerFacts& kind) {
  return any_gpu(options.devices) || (kind.takes_async && options.async == "free");
}

std::int64_t towers_of(const TrainerOptions& options, int processes) {
  return std::ssize(options.devices) * processes;
}

std::string shards_refusal(const TrainerOptions& options, const TrainerFacts& kind, int processes) {
  const std::int64_t towers = std::max<std::int64_t>(1, towers_of(options, processes));
  const std::int64_t shards = options.shards, batch = towers * options.batch_size;
  // An evaluation alone has as many towers as divide them.
  const std::int64_t devices = options.evaluates_only ? 1 : towers;
  if (shards != 0 && shards != devices && has_one_shard_each(options, kind))
    return cat(
        ": devices on GPUs, and towers that run free, have one shard each; leave it out, or use ",
        devices);
  if (shards < 0 || shards % devices != 0)
    return cat(" of the global batch cannot be divided among ", devices,
               " devices alike; use a multiple of ", devices);
  return shards <= std::max(batch, devices)
             ? ""
             : cat(" is more than the ", batch, " samples of a global batch; use at most ",
                   batch / devices * devices);
}

std::int64_t towers_of_evaluation(const EvaluatedBatch& batch, std::int64_t devices) {
  const auto is_power = [](std::int64_t n) { return (n & (n - 1)) == 0; };
  if (batch.needs_towers || !is_power(batch.shards) || !is_power(batch.towers)) return batch.towers;
  const std::int64_t divided = std::gcd(batch.samples, batch.shards);  // gcd(n, 0) is n
  std::int64_t towers = 1;
  while (2 * towers <= devices && divided % (2 * towers) == 0) towers *= 2;
  return towers;
}

std::int64_t samples_of_step(const TrainerOptions& options, int processes) {
  const int steps = options.batches.gradient_accumulation_steps;
  const std::int64_t batch = towers_of(options, processes) * options.batch_size;
  const std::int64_t memory = host_memory();
  require_option(steps <= 1 || batch <= memory / static_cast<std::int64_t>(sizeof batch) / steps,
                 "gradient_accumulation_steps", "=", steps, ": a step takes so many batches of ",
                 batch, " samples, and their order alone would need more than the ",
                 byte_text(memory), " of this machine");
  return batch * steps;
}

}  // namespace belfry
