// Names of devices: /job:J/replica:R/task:T/device:TYPE:INDEX, every field optional.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "belfry/framework/graph/interned_text.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

// A device type. "cpu" and "gpu" always become CPU and GPU, as in TensorFlow. Anything else stays
// as written, even "Gpu".
class DeviceType {
 public:
  DeviceType(std::string_view name) : name_(written(name)) {}                  // NOLINT
  DeviceType(const char* name) : DeviceType(std::string_view(name)) {}         // NOLINT
  DeviceType(const std::string& name) : DeviceType(std::string_view(name)) {}  // NOLINT

  const std::string& str() const { return name_.str(); }
  auto operator<=>(const DeviceType&) const = default;
  bool operator==(const DeviceType&) const = default;
  bool operator==(const char* name) const { return str() == written(name); }

 private:
  static std::string_view written(std::string_view name) {
    return name == "cpu" ? "CPU" : name == "gpu" ? "GPU" : name;
  }

  InternedText name_;
};

// A (partial) device name. Accepts the union of TensorFlow's two parsers: pieces in any order, with
// or without leading slashes; "gpu:0", "/GPU:0", "/device:GPU:0" and "/cpu" all parse, and mean the
// same device as the full spelling. A missing index or "*" means any index; "*" for job, replica or
// task means absent. Repeated job, replica or task: the last wins. "/gpu:0" may be in any case;
// after "device:", types are those of DeviceType. Fields may also be set by hand.
class DeviceSpec {
 public:
  DeviceSpec() = default;
  // These throw InvalidArgument naming the piece: unknown attributes, two device types, an empty
  // job, more than 4096 characters, and numbers that are negative or above 2^31 - 1 (TensorFlow's
  // Python takes any). Implicit, so that "/gpu:0" can be passed wherever a spec is expected.
  DeviceSpec(std::string_view text);                                           // NOLINT
  DeviceSpec(const char* text) : DeviceSpec(std::string_view(text)) {}         // NOLINT
  DeviceSpec(const std::string& text) : DeviceSpec(std::string_view(text)) {}  // NOLINT

  // One device of a type in this process: /job:localhost/replica:0/task:0/device:TYPE:INDEX.
  static DeviceSpec local(std::string_view type, int index);
  // The same device in one of several processes: /job:worker/replica:0/task:RANK/.... In a lone
  // process, the spec itself.
  DeviceSpec of_process(ProcessPlace place) const;

  std::optional<InternedText> job;
  std::optional<int> replica, task;
  std::optional<DeviceType> type;
  std::optional<int> index;

  bool empty() const { return *this == DeviceSpec(); }
  bool is_gpu() const { return type == "GPU"; }

  // Canonical text: present fields in the order of the grammar; a type without index prints ":*".
  std::string str() const;
  // Only type and index: "CPU:0"; "" without both.
  std::string short_str() const;

  // Merges field by field: `inner` wins where it has a value. Type and index are two fields, so
  // /gpu:1 with /cpu gives /device:CPU:1. An outer scope (*this) merges like this with the fields
  // that a node already has. Associative.
  DeviceSpec merged_with(const DeviceSpec& inner) const;

  // True if every field present here is present and equal in `device`.
  bool matches(const DeviceSpec& device) const;

  auto operator<=>(const DeviceSpec&) const = default;
};

}  // namespace belfry
