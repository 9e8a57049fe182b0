// TFRecord files: rows of records, each
//   u64 length   u32 masked CRC-32C of the length   data   u32 masked CRC-32C of the data
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/data/bad_records.h"

namespace belfry {

// A record's place.
struct TfRecordPlace {
  std::uint64_t offset = 0;  // of its length
  std::uint64_t length = 0;  // of its data
};

// The longest data of a record. Longer ones are bad: a wrong length would take all memory.
inline constexpr std::uint64_t kMostTfRecordBytes = std::uint64_t{1} << 30;

// Finds all records of a file by their lengths, and skips their data. Throws IoError, naming file
// and byte, for a length whose CRC is wrong or that exceeds the file: the start of the next record
// is unknown then. A record of more than kMostTfRecordBytes is a bad one. Throws as
// BadRecords::note() does.
std::vector<TfRecordPlace> find_tf_records(ReadableFile& file, const std::string& name,
                                           BadRecords& bad);

// The same for the file at `path`, by its index if there is one that fits (record_index.h).
std::vector<TfRecordPlace> indexed_tf_records(FileSystem& files, const std::string& path,
                                              BadRecords& bad);

// The data of a record. Throws BadRecord if they end early, their CRC is wrong, or no memory is
// left for them.
std::vector<std::byte> read_tf_record(ReadableFile& file, const std::string& name,
                                      const TfRecordPlace& place);

}  // namespace belfry
