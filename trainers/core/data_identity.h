// Which data a run is trained with, so that it does not resume with other data.
#pragma once
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Sets "fields", "samples" and, with batches by length, "buckets". Then "files" with the checksum
// of each; without files, or where one is a folder, "checksum" of the samples at both ends. A
// stream has neither: to look at its samples is to use them up.
void add_data_identity(const Dataset& data, JsonValue& identity);

// 16 hexadecimal digits. For a file up to 64 MiB they cover all of it. For a larger file they cover
// 64 blocks of 1 MiB, spread evenly from its first to its last byte, and " of N bytes" is appended.
std::string checksum_of_file(FileSystem& files, const std::string& path);

// When the files of the data last changed, and their sizes; "" without files. Reads none.
std::string stamp_of_files(const Dataset& data);
// The first file whose checksum no longer equals that in `fingerprint`; "" for none.
std::string changed_file(const Dataset& data, const JsonValue& fingerprint);

}  // namespace belfry
