#include "belfry/trainers/machine/machine_file.h"

#include "belfry/allreduce/simulation/host_machine.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

JsonValue read_description(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path, kMostJsonBytes);
  return JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool describes_cluster(const JsonValue& json) { return json.find("host") != nullptr; }

}  // namespace

MachineDescription read_machine(FileSystem& files, const std::string& path) {
  try {
    const JsonValue json = read_description(files, path);
    return describes_cluster(json) ? host_machine(parse_cluster(json)) : parse_machine(json);
  } catch (const Error& error) {
    refuse_option<OptionMistake>("links", "=", path, ": ", error.what());
  }
}

std::optional<ClusterDescription> read_cluster(FileSystem& files, const std::string& path) {
  const JsonValue json = read_description(files, path);
  if (!describes_cluster(json)) return {};
  return parse_cluster(json);
}

}  // namespace belfry
