// The places of a data file's records, kept in a file beside it. So only the first run reads the
// head of each record.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/data/gzip_points.h"

namespace belfry {

struct IndexedRecord {
  std::uint64_t offset = 0;  // where it begins, in the unpacked file
  std::uint64_t head = 0;    // bytes before its data
  std::uint64_t length = 0;  // of its data
  std::int64_t label = 0;
  bool operator==(const IndexedRecord&) const = default;
};

// A kind gets a new number when files are refused that were not before.
enum class IndexedKind : std::uint64_t { kTfRecords = 1, kTar = 3 };

struct RecordIndex {
  std::vector<IndexedRecord> records;
  GzipPoints points = {};  // of a gzipped file
  bool is_whole = true;    // there is nothing that each run has to report anew
};

// ".NAME.index" in the folder of `path`, so that train-* does not find it.
std::string index_path(const std::string& path);

// What `scan` finds in the file at `path`, or what it found in an earlier run, if the file had the
// same size and time then. As times are whole seconds, an index is trusted only if it was written
// at least two seconds after the file; else it is made anew. Writes the index if it spares enough:
// for files with at least kLeastIndexed records. Where that fails it warns, and the next run scans
// again. A gzipped file needs its index, as samples are read by its points: IoError then says what
// to do.
inline constexpr std::size_t kLeastIndexed = 256;
RecordIndex record_index(FileSystem& files, const std::string& path, IndexedKind kind,
                         const std::function<RecordIndex(ReadableFile&)>& scan);

// The index in `file`, for a data file of this size and time. Throws IoError if it is damaged, or
// made for another file, or has a record that a file of this size cannot have.
RecordIndex read_index(ReadableFile& file, IndexedKind kind, std::uint64_t size,
                       std::int64_t modified);
// The content of such a file.
std::string index_bytes(const RecordIndex& index, IndexedKind kind, std::uint64_t size,
                        std::int64_t modified);

}  // namespace belfry
