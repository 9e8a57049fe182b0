// How many processes, towers, samples and shards a training has by its options, before it is built.
#pragma once
#include <cstdint>
#include <string>

#include "belfry/trainers/core/trainer_options.h"

namespace belfry {

struct TrainerFacts;

// The processes that train, or would where a dry run plans one of them.
int processes_of(const TrainerOptions& options);

// The towers of so many processes, each of which has these devices.
std::int64_t towers_of(const TrainerOptions& options, int processes);

// The samples of a step of so many processes. Throws OptionError for so many batches that no
// data could have them: this machine cannot even hold their order.
std::int64_t samples_of_step(const TrainerOptions& options, int processes);

// Whether a device has one shard, and no more: on GPUs, and where towers run free.
bool has_one_shard_each(const TrainerOptions& options, const TrainerFacts& kind);

// Why the devices of so many processes, or their batch, cannot have this number of shards; "" if
// they can. It follows the option and its value.
std::string shards_refusal(const TrainerOptions& options, const TrainerFacts& kind, int processes);

}  // namespace belfry
