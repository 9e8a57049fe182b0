#include "belfry/framework/graph/device_spec.h"

#include <charconv>
#include <limits>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Parses one spec, piece by piece, into `spec`.
struct Parser {
  std::string_view text;
  DeviceSpec& spec;
  bool has_type = false;

  [[noreturn]] void fail(std::string_view why) const {
    throw InvalidArgument(cat("device '", text, "': ", why));
  }

  std::optional<int> number(std::string_view value, std::string_view field) const {
    if (value == "*") return std::nullopt;
    std::int64_t parsed = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < 0 ||
        parsed > std::numeric_limits<int>::max())
      fail(cat(field, " must be a number from 0 to 2147483647 or *, not '", value, "'"));
    return static_cast<int>(parsed);
  }

  void set_type(std::string_view type, std::optional<int> index) {
    if (has_type) fail(cat("Cannot specify multiple device types: ", text));
    if (type.empty()) fail("the device type is missing");
    has_type = true;
    if (type != "*") spec.type = type;
    spec.index = index;
  }

  void piece(std::string_view piece) {
    const std::vector<std::string_view> parts = split(piece, ':');
    const std::string_view key = parts[0];
    const std::string short_type = upper(key);
    if (key == "job" && parts.size() == 2) {
      if (parts[1].empty()) fail("the job is empty");
      spec.job = parts[1] == "*" ? std::nullopt : std::optional<InternedText>(parts[1]);
    } else if (key == "replica" && parts.size() == 2) {
      spec.replica = number(parts[1], "replica");
    } else if (key == "task" && parts.size() == 2) {
      spec.task = number(parts[1], "task");
    } else if ((short_type == "CPU" || short_type == "GPU") && parts.size() <= 2) {
      set_type(short_type, parts.size() == 2 ? number(parts[1], "index") : std::nullopt);
    } else if (key == "device" && (parts.size() == 2 || parts.size() == 3)) {
      set_type(parts[1], parts.size() == 3 ? number(parts[2], "index") : std::nullopt);
    } else {
      fail(cat("Unknown attribute: '", key, "' in '", text,
               "'; write e.g. /job:worker/task:0/device:GPU:1"));
    }
  }
};

}  // namespace

DeviceSpec::DeviceSpec(std::string_view text) {
  constexpr std::size_t kLongest = 4096;
  require(text.size() <= kLongest, "a device of ", text.size(), " characters, '", shown(text),
          "'; the longest has ", kLongest);
  Parser parser{text, *this};
  for (const std::string_view piece : split(text, '/'))
    if (!piece.empty()) parser.piece(piece);
}

DeviceSpec DeviceSpec::local(std::string_view type, int index) {
  DeviceSpec spec;
  spec.job = "localhost";
  spec.replica = 0;
  spec.task = 0;
  spec.type = type;
  spec.index = index;
  return spec;
}

DeviceSpec DeviceSpec::of_process(ProcessPlace place) const {
  DeviceSpec spec = *this;
  if (place.size == 1) return spec;
  spec.job = "worker";
  spec.task = place.rank;
  return spec;
}

std::string DeviceSpec::str() const {
  std::string out;
  if (job) out += "/job:" + job->str();
  if (replica) out += "/replica:" + std::to_string(*replica);
  if (task) out += "/task:" + std::to_string(*task);
  if (type || index) out += "/device:" + short_str();
  return out;
}

std::string DeviceSpec::short_str() const {
  if (!type && !index) return {};
  return type.value_or("*").str() + ":" + (index ? std::to_string(*index) : "*");
}

DeviceSpec DeviceSpec::merged_with(const DeviceSpec& inner) const {
  DeviceSpec out = inner;
  if (!out.job) out.job = job;
  if (!out.replica) out.replica = replica;
  if (!out.task) out.task = task;
  if (!out.type) out.type = type;
  if (!out.index) out.index = index;
  return out;
}

bool DeviceSpec::matches(const DeviceSpec& device) const {
  return (!job || job == device.job) && (!replica || replica == device.replica) &&
         (!task || task == device.task) && (!type || type == device.type) &&
         (!index || index == device.index);
}

}  // namespace belfry
