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

// Where a record is.
struct TfRecordPlace {
  std::uint64_t offset = 0;  // of its length
  std::uint64_t length = 0;  // of its data
};

// All records of a file, by their lengths: data are passed over. What follows a length that the
// file has no room for, or whose CRC is wrong, is lost with one bad record, as nobody knows where
// the next begins. So is what follows a length that leads to no next record and data without their
// CRC. Throws as BadRecords::note() does.
std::vector<TfRecordPlace> find_tf_records(ReadableFile& file, const std::string& name,
                                           BadRecords& bad);

// The data of one. Throws BadRecord if they end early or their CRC is wrong.
std::vector<std::byte> read_tf_record(ReadableFile& file, const std::string& name,
                                      const TfRecordPlace& place);

}  // namespace belfry
