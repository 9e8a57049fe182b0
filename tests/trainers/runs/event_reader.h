// Reads event files as TensorBoard does. It shares no code with their writer.
#pragma once
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

inline std::string text_of(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
T number_at(std::string_view bytes) {
  T number;
  if (bytes.size() < sizeof number) throw std::runtime_error("a number is cut");
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// Computes the CRC bit by bit, as its definition says.
inline std::uint32_t masked_crc_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 ? crc / 2 ^ 0x82f63b78 : crc / 2;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

// The data of whole records; bytes after the last one are ignored. Throws for a record with a wrong
// CRC.
inline std::vector<std::string> records_of(std::string_view file) {
  constexpr std::size_t kHead = 12, kFoot = 4;
  std::vector<std::string> records;
  while (file.size() >= kHead) {
    const auto length = number_at<std::uint64_t>(file);
    if (number_at<std::uint32_t>(file.substr(8)) != masked_crc_of(file.substr(0, 8)))
      throw std::runtime_error("the CRC of a length is wrong");
    if (file.size() < kHead + length + kFoot) break;
    const std::string_view data = file.substr(kHead, length);
    if (number_at<std::uint32_t>(file.substr(kHead + length)) != masked_crc_of(data))
      throw std::runtime_error("the CRC of a record is wrong");
    records.emplace_back(data);
    file.remove_prefix(kHead + length + kFoot);
  }
  return records;
}

// The fields of a protobuf message in their order: the number, and the value as bytes.
inline std::vector<std::pair<int, std::string>> fields_of(std::string_view message) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (message.empty()) throw std::runtime_error("a number is cut");
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<std::pair<int, std::string>> fields;
  while (!message.empty()) {
    const std::uint64_t key = varint();
    std::string value;
    if (key % 8 == 0) {
      const std::uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), sizeof number);
    } else {
      const std::size_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      if (message.size() < size) throw std::runtime_error("a field is cut");
      value = message.substr(0, size);
      message.remove_prefix(size);
    }
    fields.emplace_back(static_cast<int>(key / 8), value);
  }
  return fields;
}

struct ReadValue {
  std::string tag;
  std::optional<float> scalar;
  std::map<int, std::string> histogram;  // fields of HistogramProto
};

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool starts = false;  // SessionLog START
  std::vector<ReadValue> values;
};

inline ReadValue value_of(std::string_view message) {
  ReadValue value;
  for (const auto& [field, bytes] : fields_of(message)) {
    if (field == 1) value.tag = bytes;
    if (field == 2) value.scalar = number_at<float>(bytes);
    if (field == 5)
      for (const auto& [number, content] : fields_of(bytes)) value.histogram[number] = content;
  }
  return value;
}

inline ReadEvent event_of(std::string_view message) {
  ReadEvent event;
  for (const auto& [field, bytes] : fields_of(message)) {
    if (field == 1) event.wall_time = number_at<double>(bytes);
    if (field == 2) event.step = number_at<std::int64_t>(bytes);
    if (field == 3) event.file_version = bytes;
    if (field == 5)
      for (const auto& [number, value] : fields_of(bytes)) event.values.push_back(value_of(value));
    if (field == 7) event.starts = number_at<std::int64_t>(fields_of(bytes).at(0).second) == 1;
  }
  return event;
}

// The events of all files of a directory, in the order of their names.
inline std::vector<ReadEvent> events_in(FileSystem& files, const std::string& directory) {
  std::vector<ReadEvent> events;
  for (const std::string& name : files.list(directory))
    if (name.find("tfevents") != name.npos)
      for (const std::string& record : records_of(text_of(files, directory + "/" + name)))
        events.push_back(event_of(record));
  return events;
}

// The points that TensorBoard shows of a directory. A START record drops earlier points of its step
// and of later steps.
struct Shown {
  std::map<std::string, std::vector<std::int64_t>> steps;  // by tag
  std::map<std::string, std::vector<float>> scalars;
};

inline Shown shown_in(FileSystem& files, const std::string& directory) {
  std::vector<ReadEvent> kept;
  for (ReadEvent& event : events_in(files, directory)) {
    if (event.starts) std::erase_if(kept, [&](const auto& e) { return e.step >= event.step; });
    if (!event.values.empty()) kept.push_back(std::move(event));
  }
  Shown shown;
  for (const ReadEvent& event : kept)
    for (const ReadValue& value : event.values) {
      shown.steps[value.tag].push_back(event.step);
      if (value.scalar) shown.scalars[value.tag].push_back(*value.scalar);
    }
  return shown;
}

}  // namespace belfry
