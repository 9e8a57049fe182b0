// The numbers of processes, towers, samples and shards of a training, from its options, before it
// is built.
#pragma once
#include <cstdint>
#include <string>

#include "belfry/trainers/core/trainer_options.h"

namespace belfry {

struct TrainerFacts;

// The number of processes that train, or that a dry run plans.
int processes_of(const TrainerOptions& options);

// The number of towers of that many processes with these devices each.
std::int64_t towers_of(const TrainerOptions& options, int processes);

// The number of samples of a step of that many processes. Throws OptionError if it is so large that
// this machine could not even hold the order of the samples.
std::int64_t samples_of_step(const TrainerOptions& options, int processes);

// The global batches that an evaluation alone takes.
struct EvaluatedBatch {
  std::int64_t samples = 1;
  std::int64_t shards = 0;    // 0: a default, or one per tower
  std::int64_t towers = 1;    // of the run that it was a batch of
  bool needs_towers = false;  // as many as the run had: results depend on them
};

// The number of towers that share such a batch. If shards and towers of the run are powers of two,
// any power of two that divides the batch and its shards gives the same bits, so this is the
// largest one up to `devices`. Otherwise it is the number that the run had, which may be larger.
std::int64_t towers_of_evaluation(const EvaluatedBatch& batch, std::int64_t devices);

// Whether each device has exactly one shard: on GPUs, and for free-running towers.
bool has_one_shard_each(const TrainerOptions& options, const TrainerFacts& kind);

// Why the devices or the batch of that many processes cannot have options.shards shards; "" if they
// can. In an error the text follows the option and its value.
std::string shards_refusal(const TrainerOptions& options, const TrainerFacts& kind, int processes);

}  // namespace belfry
