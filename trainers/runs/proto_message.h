// Writes messages in the encoding of protocol buffers. A library for that would be a heavy
// dependency for the small messages of event files and ONNX files.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace belfry {

// Fields are numbered as in the .proto file. A cleared message keeps its memory, so a reused one
// allocates nothing.
class ProtoMessage {
 public:
  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

  // For int32, int64 and enum.
  void add(int field, std::int64_t value) {
    add_key(field, kVarint);
    add_varint(static_cast<std::uint64_t>(value));
  }
  void add(int field, double value) {
    add_key(field, kFixed64);
    add_raw(value);
  }
  void add(int field, float value) {
    add_key(field, kFixed32);
    add_raw(value);
  }
  // For string, bytes, and a field that is a message.
  void add(int field, std::string_view bytes) {
    add_key(field, kBytes);
    add_varint(bytes.size());
    bytes_ += bytes;
  }
  void add(int field, const ProtoMessage& message) { add(field, std::string_view(message.bytes_)); }
  // The beginning of a field of this many bytes, which the caller writes after all of this message.
  void add_head(int field, std::uint64_t bytes) {
    add_key(field, kBytes);
    add_varint(bytes);
  }
  // For repeated double, packed.
  void add(int field, std::span<const double> values) {
    add(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }

 private:
  enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  static_assert(std::endian::native == std::endian::little, "as the encoding is");

  void add_key(int field, Wire wire) { add_varint(static_cast<std::uint64_t>(field << 3 | wire)); }
  void add_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class T>
  void add_raw(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }

  std::string bytes_;
};

}  // namespace belfry
