#include "belfry/trainers/data/tf_record.h"

#include <bit>
#include <cstring>
#include <new>
#include <span>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/record_index.h"
#include "belfry/trainers/util/crc32c.h"

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little, "TFRecord files are little-endian");

constexpr std::uint64_t kLengthBytes = 8, kCrcBytes = 4;
constexpr std::uint64_t kHeadBytes = kLengthBytes + kCrcBytes;

template <class T>
T number_in(std::span<const std::byte> bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

std::string crc_text(std::string_view of, std::uint32_t expected, std::uint32_t found) {
  return cat("expected the CRC 0x", hex(expected, 8), " of ", of, ", found 0x", hex(found, 8));
}

// Reads the head of the record at `offset`, where the file stands.
TfRecordPlace read_head(ReadableFile& file, const std::string& name, std::uint64_t offset) {
  const auto fail = [&](const std::string& reason) {
    throw lost_rest(name, ": record at byte ", offset, ": ", reason);
  };
  std::byte head[kHeadBytes];
  const std::size_t got = file.read(head);
  note_progress();
  if (got < kHeadBytes) fail(cat("expected ", kHeadBytes, " bytes of length and CRC, found ", got));
  const auto bytes = std::span<const std::byte>(head);
  const auto length = number_in<std::uint64_t>(bytes);
  const auto crc = number_in<std::uint32_t>(bytes.subspan(kLengthBytes));
  const std::uint32_t expected = masked_crc32c(bytes.first(kLengthBytes));
  if (crc != expected) fail(crc_text("its length", expected, crc));
  const std::uint64_t room = file.size() - offset - kHeadBytes;
  if (room < kCrcBytes || length > room - kCrcBytes)
    fail(cat("its ", length, " bytes and their CRC exceed the ", room, " that the file has left"));
  return {offset, length};
}

std::vector<std::byte> memory_of_record(const std::string& name, const TfRecordPlace& place) try {
  return std::vector<std::byte>(place.length + kCrcBytes);
} catch (const std::bad_alloc&) {
  throw BadRecord(name, place.offset,
                  cat("its data take ", byte_text(static_cast<std::int64_t>(place.length)),
                      ", and there is no memory left for them"));
}

}  // namespace

std::vector<TfRecordPlace> find_tf_records(ReadableFile& file, const std::string& name,
                                           BadRecords& bad) {
  std::vector<TfRecordPlace> places;
  for (std::uint64_t offset = 0; offset < file.size();) {
    file.seek(offset);
    const TfRecordPlace place = read_head(file, name, offset);
    if (place.length <= kMostTfRecordBytes)
      places.push_back(place);
    else
      bad.note(BadRecord(name, offset,
                         cat("its data take ", place.length, " bytes, more than the ",
                             kMostTfRecordBytes, " that a record may have")));
    offset += kHeadBytes + place.length + kCrcBytes;
  }
  return places;
}

std::vector<TfRecordPlace> indexed_tf_records(FileSystem& files, const std::string& path,
                                              BadRecords& bad) {
  const auto scan = [&](ReadableFile& file) {
    RecordIndex found;
    const std::int64_t bad_before = bad.count();
    for (const TfRecordPlace& place : find_tf_records(file, path, bad))
      found.records.push_back({.offset = place.offset, .length = place.length});
    found.is_whole = bad.count() == bad_before;
    return found;
  };
  std::vector<TfRecordPlace> places;
  for (const IndexedRecord& record :
       record_index(files, path, IndexedKind::kTfRecords, scan).records)
    places.push_back({record.offset, record.length});
  return places;
}

std::vector<std::byte> read_tf_record(ReadableFile& file, const std::string& name,
                                      const TfRecordPlace& place) {
  // The file may have become shorter since it was looked at.
  if (place.offset + kHeadBytes + place.length + kCrcBytes > file.size())
    throw BadRecord(name, place.offset, cat("the file ends before its ", place.length, " bytes"));
  file.seek(place.offset + kHeadBytes);
  std::vector<std::byte> data = memory_of_record(name, place);
  const std::size_t got = file.read(data);
  if (got < data.size())
    throw BadRecord(name, place.offset,
                    cat("expected ", place.length, " bytes and their CRC, found ", got));
  const auto crc = number_in<std::uint32_t>(std::span(data).last(kCrcBytes));
  data.resize(place.length);
  const std::uint32_t expected = masked_crc32c(data);
  if (crc != expected) throw BadRecord(name, place.offset, crc_text("its data", expected, crc));
  return data;
}

}  // namespace belfry
