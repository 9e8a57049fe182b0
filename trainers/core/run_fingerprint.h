// What must be the same for a run to go on as if it had never stopped, whatever carries it out.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/group/agreement.h"

namespace belfry {

class BuiltTraining;
class TrainingProgress;
struct Dataset;

// The model's graph (a hash of each node's op, name, options and types, by part), the optimizer and
// its rates, global batch, seed and data. Not in it: devices, trainer, strategy, threads, epochs,
// steps. Reads the data: of each file what checksum_of_file() does.
JsonValue run_fingerprint(const BuiltTraining& built, const TrainingProgress& progress);

// What the processes of one training must have alike: the version of Belfry, the fingerprint of the
// run and the test data. Each variable is there with its line and present value, each node of the
// model with its line. Then comes what the processes send to each other, in order. Reads all
// variables.
std::vector<AgreedItem> agreed_items(BuiltTraining& built, const TrainingProgress& progress,
                                     const JsonValue& fingerprint);

// 16 hexadecimal digits of a file up to 64 MiB, all of which it reads. Of a larger one those of 64
// blocks of a MiB, spread evenly from its first to its last byte, with its size: " of N bytes".
std::string checksum_of_file(FileSystem& files, const std::string& path);

// When the files of the data last changed, and their sizes; "" without files. Reads none.
std::string stamp_of_files(const Dataset& data);
// The first file whose checksum is not that in `fingerprint` any more; "" for none.
std::string changed_file(const Dataset& data, const JsonValue& fingerprint);

// The member of that name, a text as it is and all else as JSON; "" if there is none.
std::string member_text(const JsonValue& json, std::string_view key);

// "the seed was 1 and is now 2": the first member that differs; "" for none.
std::string first_difference(const JsonValue& before, const JsonValue& now);
// The first of those that decide which variables of a model have averages and slots; "" for none.
std::string difference_of_extra_variables(const JsonValue& before, const JsonValue& now);

}  // namespace belfry
