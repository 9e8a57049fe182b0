// What a Trainer refuses before it builds anything.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Returns `data.size()`. Throws InvalidArgument if it is negative, or so large that this machine
// cannot even hold the order of an epoch's samples. The error calls the data `what`.
std::int64_t checked_size(const Dataset& data, std::string_view what);

// Throws InvalidArgument naming the first callback that is null, or has the name of one before it.
// The error calls the list `where`.
void check_callbacks(std::span<const std::shared_ptr<Callback>> callbacks, std::string_view where);

// Throws InvalidArgument if `options` lack something, or do not fit the kind of trainer.
void check_options(const TrainerOptions& options, const TrainerKind& kind);

// Throws InvalidArgument for fields that cannot be fed; and for test data (null: none) that have
// other fields than the training data. Unless it is a dry run, which reads no data, it also throws
// for test data without samples.
void check_data(const Dataset& train, const Dataset* test, bool dry_run);
// The same for the other validation sets. Throws InvalidArgument for names that are no words, or
// not different.
void check_validation(const Dataset& train, std::span<const ValidationSet> sets, bool dry_run);
// For training data that are a stream: throws OptionError unless the number of steps is given, and
// towers make steps together.
void check_stream(const TrainerOptions& options, const TrainerKind& kind);

}  // namespace belfry
