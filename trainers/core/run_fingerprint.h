// What must be the same for a run to resume as if it had never stopped, whichever devices or
// processes run it.
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
// its rates, global batch, seed and data. It leaves out devices, trainer, strategy, threads, epochs
// and steps. Reads the files of the data as checksum_of_file() does.
JsonValue run_fingerprint(const BuiltTraining& built, const TrainingProgress& progress);

// What must be equal in all processes of a training: the version of Belfry, the fingerprint of the
// run and the test data; each variable with its line and present value; each node of the model with
// its line; and the messages between the processes, in order. Reads all variables.
std::vector<AgreedItem> agreed_items(BuiltTraining& built, const TrainingProgress& progress,
                                     const JsonValue& fingerprint);

// 16 hexadecimal digits. For a file up to 64 MiB they cover all of it. For a larger file they cover
// 64 blocks of 1 MiB, spread evenly from its first to its last byte, and " of N bytes" is appended.
std::string checksum_of_file(FileSystem& files, const std::string& path);

// When the files of the data last changed, and their sizes; "" without files. Reads none.
std::string stamp_of_files(const Dataset& data);
// The first file whose checksum no longer equals that in `fingerprint`; "" for none.
std::string changed_file(const Dataset& data, const JsonValue& fingerprint);

// The member `key`: a text as it is, any other value as JSON; "" if there is none.
std::string member_text(const JsonValue& json, std::string_view key);

// "the seed was 1 and is now 2": the first member that differs; "" for none.
std::string first_difference(const JsonValue& before, const JsonValue& now);
// The first difference among the members that decide which averages and slots exist; "" for none.
std::string difference_of_extra_variables(const JsonValue& before, const JsonValue& now);

}  // namespace belfry
