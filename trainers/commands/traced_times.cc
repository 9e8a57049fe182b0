#include "belfry/trainers/commands/traced_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

struct TracedLaunch {
  double begin, end;  // microseconds
  std::string name;
};

// Each event has a line of its own. A worker's part of a launch names no device.
std::vector<TracedLaunch> traced_launches(std::string_view trace) {
  std::vector<TracedLaunch> launches;
  std::set<std::string> devices;
  for (std::string_view line : split(trace, '\n')) {
    if (!line.starts_with("{\"ph\":\"X\"")) continue;
    if (line.ends_with(',')) line.remove_suffix(1);
    const JsonValue event = JsonValue::parse(line), &args = event.at("args");
    const JsonValue* const device = args.find("device");
    if (!device || !args.find("phase")) continue;
    const double begin = event.at("ts").number(), time = event.at("dur").number();
    require(std::isfinite(begin) && begin >= 0 && std::isfinite(time) && time >= 0, "a launch at ",
            begin, " us that takes ", time, " us");
    devices.insert(device->text());
    launches.push_back({begin, begin + time, args.at("name").text()});
  }
  require(devices.size() == 1, "the trace is of ", devices.size(),
          " devices, not of one: trace the program with one device and one process");
  std::ranges::stable_sort(launches, {}, &TracedLaunch::end);
  return launches;
}

struct LaunchTime {
  double seconds = 0, end = -1;
};

}  // namespace

void take_traced_times(std::string_view trace, TrainingWorkload& work) {
  std::map<std::string, LaunchTime> times;
  for (const WorkloadLaunch& launch : work.launches) times[launch.name];
  const std::vector<TracedLaunch> launches = traced_launches(trace);
  double now = std::ranges::min(launches, {}, &TracedLaunch::begin).begin;
  for (const TracedLaunch& launch : launches) {
    const auto known = times.find(launch.name);
    if (known == times.end()) continue;  // its time goes to the next one
    known->second.seconds += (launch.end - now) * 1e-6;
    known->second.end = now = launch.end;
  }
  for (WorkloadLaunch& launch : work.launches) {
    LaunchTime& time = times[launch.name];
    require(time.end >= 0, "the trace lacks the launch '", shown(launch.name),
            "' of the plan: trace the program with the flags of its --dry_run");
    launch.seconds = std::exchange(time.seconds, 0);  // the first of equal names has all of it
  }
  std::ranges::stable_sort(work.launches, {},
                           [&](const WorkloadLaunch& launch) { return times[launch.name].end; });
}

}  // namespace belfry
