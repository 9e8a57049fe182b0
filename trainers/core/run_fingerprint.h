// What must be the same for a run to resume as if it had never stopped, whichever devices or
// processes run it.
#pragma once
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/group/agreement.h"

namespace belfry {

class BuiltTraining;
class TrainingProgress;

// The model's graph (a hash of each node's op, name, options and types, by part), the optimizer and
// its rates, global batch, seed and data. It leaves out devices, trainer, strategy, threads, epochs
// and steps. Reads the files of the data as add_data_identity() does.
JsonValue run_fingerprint(const BuiltTraining& built, const TrainingProgress& progress);

// What must be equal in all processes of a training: the version of Belfry, the fingerprint of the
// run and the test data; each variable with its line and present value; each node of the model with
// its line; and the messages between the processes, in order. Reads all variables.
std::vector<AgreedItem> agreed_items(BuiltTraining& built, const TrainingProgress& progress,
                                     const JsonValue& fingerprint);

}  // namespace belfry
