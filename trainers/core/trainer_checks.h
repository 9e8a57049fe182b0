// What a Trainer refuses before it builds anything.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {

// Returns `data.size()`. Throws InvalidArgument for a number that is negative, or so large that
// this machine cannot even hold the order of an epoch. The error calls the data `what`.
std::int64_t checked_size(const Dataset& data, std::string_view what);

// The processes that train, or would where a dry run plans one of them.
int processes_of(const TrainerOptions& options);

// The towers of so many processes, each of which has these devices.
std::int64_t towers_of(const TrainerOptions& options, int processes);

// The samples of a step of so many processes. Throws OptionError for so many batches that no
// data could have them: this machine cannot even hold their order.
std::int64_t samples_of_step(const TrainerOptions& options, int processes);

// Throws InvalidArgument naming the first callback that is null, or has the name of one before it.
// The error calls the list `where`.
void check_callbacks(std::span<const std::shared_ptr<Callback>> callbacks, std::string_view where);

// Whether a device has one shard, and no more: on GPUs, and where towers run free.
bool has_one_shard_each(const TrainerOptions& options, const TrainerFacts& kind);

// Why the devices of so many processes, or their batch, cannot have this number of shards; "" if
// they can. It follows the option and its value.
std::string shards_refusal(const TrainerOptions& options, const TrainerFacts& kind, int processes);

// Throws InvalidArgument if `options` lack something, or do not fit the kind of trainer.
void check_options(const TrainerOptions& options, const TrainerKind& kind);

// Throws InvalidArgument for fields that cannot be fed; and for test data (null: none) that have
// other fields than the training data or, unless data may not be read, no samples.
void check_data(const Dataset& train, const Dataset* test, bool dry_run);

}  // namespace belfry
