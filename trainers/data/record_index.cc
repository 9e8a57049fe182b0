#include "belfry/trainers/data/record_index.h"

#include <bit>
#include <cstring>
#include <optional>
#include <span>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/crc32c.h"

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little, "indexes are little-endian");

// A file is a head, the records, the points, a masked CRC-32C of these, and the windows.
constexpr std::uint64_t kIndexMagic = 0x3178646e69666c62;  // "blfindx1"
struct IndexHead {
  std::uint64_t magic, kind, size;
  std::int64_t modified;
  std::uint64_t records, points;
};
struct WrittenRecord {
  std::uint64_t offset, head, length;
  std::int64_t label;
};
struct WrittenPoint {
  std::uint64_t unpacked, packed;
  std::uint32_t bits, window;
};

template <class T>
void append_value(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T take_value(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

// Whether a file of `size` bytes, or what it unpacks to, can have the record.
bool may_have(const WrittenRecord& record, std::uint64_t size, bool packed) {
  constexpr std::uint64_t kMostPacking = 1032;  // deflate's limit
  const std::uint64_t most = packed ? size * kMostPacking : size;
  return record.offset <= most && record.head <= most - record.offset &&
         record.length <= most - record.offset - record.head;
}

std::optional<RecordIndex> known_index(FileSystem& files, const std::string& path, IndexedKind kind,
                                       std::uint64_t size) try {
  constexpr std::int64_t kLeastAge = 2;  // seconds; times are whole ones
  const std::string beside = index_path(path);
  if (!files.exists(beside)) return {};
  const std::int64_t modified = files.modified(path);
  require<IoError>(files.modified(beside) >= modified + kLeastAge,
                   "it is hardly younger than the file, which may have changed since");
  return read_index(*files.open(beside), kind, size, modified);
} catch (const IoError& error) {
  log_info(index_path(path), ": made anew: ", error.what());
  return {};
}

}  // namespace

std::string index_path(const std::string& path) {
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  return cat(path.substr(0, name), ".", path.substr(name), ".index");
}

std::string index_bytes(const RecordIndex& index, IndexedKind kind, std::uint64_t size,
                        std::int64_t modified) {
  std::string text;
  append_value(text, IndexHead{.magic = kIndexMagic,
                               .kind = static_cast<std::uint64_t>(kind),
                               .size = size,
                               .modified = modified,
                               .records = index.records.size(),
                               .points = index.points.places.size()});
  for (const IndexedRecord& record : index.records)
    append_value(text, WrittenRecord{record.offset, record.head, record.length, record.label});
  for (const GzipPoint& point : index.points.places)
    append_value(text, WrittenPoint{point.unpacked, point.packed, point.bits, point.window});
  append_value(text, masked_crc32c(text));
  return text + index.points.windows;
}

RecordIndex read_index(ReadableFile& file, IndexedKind kind, std::uint64_t size,
                       std::int64_t modified) {
  const std::uint64_t all = file.size();
  std::vector<std::byte> bytes(sizeof(IndexHead));
  require<IoError>(file.read(bytes) == bytes.size(), "the index is cut off");
  std::span<const std::byte> rest = bytes;
  const auto head = take_value<IndexHead>(rest);
  require<IoError>(head.magic == kIndexMagic && head.kind == static_cast<std::uint64_t>(kind),
                   "no index of such files");
  require<IoError>(head.size == size && head.modified == modified,
                   "the file has changed since it was indexed");
  require<IoError>(
      head.records <= all / sizeof(WrittenRecord) && head.points <= all / sizeof(WrittenPoint),
      "the index is cut off");
  const std::uint64_t places =
      head.records * sizeof(WrittenRecord) + head.points * sizeof(WrittenPoint);
  require<IoError>(places + sizeof(IndexHead) + sizeof(std::uint32_t) <= all,
                   "the index is cut off");
  bytes.resize(sizeof(IndexHead) + places + sizeof(std::uint32_t));
  file.seek(0);
  require<IoError>(file.read(bytes) == bytes.size(), "the index is cut off");
  rest = std::span(bytes).last(sizeof(std::uint32_t));
  require<IoError>(take_value<std::uint32_t>(rest) ==
                       masked_crc32c(std::span(bytes).first(bytes.size() - sizeof(std::uint32_t))),
                   "the index is damaged");
  RecordIndex index;
  rest = std::span(bytes).subspan(sizeof(IndexHead));
  index.records.reserve(head.records);
  for (std::uint64_t i = 0; i < head.records; ++i) {
    const auto record = take_value<WrittenRecord>(rest);
    require<IoError>(may_have(record, size, head.points > 0), "the index is damaged");
    index.records.push_back({record.offset, record.head, record.length, record.label});
  }
  std::uint64_t window_at = bytes.size();
  for (std::uint64_t i = 0; i < head.points; ++i) {
    const auto point = take_value<WrittenPoint>(rest);
    index.points.places.push_back(
        {point.unpacked, point.packed, point.bits, point.window, window_at});
    window_at += point.window;
  }
  require<IoError>(window_at == all, "the index is cut off");
  return index;
}

RecordIndex record_index(FileSystem& files, const std::string& path, IndexedKind kind,
                         const std::function<RecordIndex(ReadableFile&)>& scan) {
  const auto file = files.open(path);
  if (auto known = known_index(files, path, kind, file->size())) return *std::move(known);
  const std::int64_t modified = files.modified(path);
  RecordIndex found = scan(*file);
  const bool packed = !found.points.places.empty();
  if (!packed && (!found.is_whole || found.records.size() < kLeastIndexed)) return found;
  const std::string beside = index_path(path);
  try {
    write_text_file(files, beside, index_bytes(found, kind, file->size(), modified));
    return packed ? read_index(*files.open(beside), kind, file->size(), modified) : found;
  } catch (const IoError& error) {
    if (packed)
      throw IoError(about_option("data_dir", path,
                                 ": a gzipped file is read by an index, which cannot be written: ",
                                 error.what(), "; unpack the file, or let its folder be written"));
    if (first_time_logged("no index of records"))
      log_warning(error.what(), "; each run reads the head of every record of ", path);
  }
  return found;
}

}  // namespace belfry
