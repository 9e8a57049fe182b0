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

// Finds all records of a file by their lengths, and skips their data. A length is bad if its CRC is
// wrong, or if the file ends before; or if its data's CRC is wrong and no record follows. Then the
// start of the next record is unknown: the rest of the file is lost, as one bad record. Throws as
// BadRecords::note() does.
std::vector<TfRecordPlace> find_tf_records(ReadableFile& file, const std::string& name,
                                           BadRecords& bad);

// The data of a record. Throws BadRecord if they end early or their CRC is wrong.
std::vector<std::byte> read_tf_record(ReadableFile& file, const std::string& name,
                                      const TfRecordPlace& place);

}  // namespace belfry
