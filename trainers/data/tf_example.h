// Reads features of a tf.train.Example, a message of protobuf:
//   Example {Features features = 1;}      Features {map<string, Feature> feature = 1;}
//   Feature {BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3;}
//   BytesList {repeated bytes value = 1;}   Int64List {repeated int64 value = 1 [packed];}
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace belfry {

// Reads a message in memory, which must outlive it. Allocates nothing. Its functions throw
// InvalidArgument, saying what is wrong with the message.
class TfExample {
 public:
  explicit TfExample(std::span<const std::byte> message) : message_(message) {}

  // The first value of a feature; none without the feature. Throws if the feature has another type,
  // or no value.
  std::optional<std::span<const std::byte>> bytes(std::string_view feature) const;
  std::optional<std::int64_t> integer(std::string_view feature) const;

 private:
  std::optional<std::span<const std::byte>> find(std::string_view feature) const;

  std::span<const std::byte> message_;
};

}  // namespace belfry
