// Reads the records of runs in stats.jsonl (stats_log.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"

namespace belfry {

struct StatsPoint {
  std::int64_t step = 0;
  double value = 0;  // NaN and infinities, too
};

struct MetricStats {
  std::string metric;  // its name in training: "loss"
  std::vector<StatsPoint> training = {}, validation = {};
};

struct RunStats {
  std::string name;                  // the name of the run's directory
  std::vector<MetricStats> metrics;  // in the requested order
};

// What to do about a requested metric that no line has.
enum class MissingMetric : bool { kRefuse, kAllow };

// Takes the bytes of a file in pieces. If steps go back, because a run was resumed, the later lines
// replace the earlier ones.
class StatsReader {
 public:
  // `file` is for errors.
  StatsReader(std::string file, std::span<const std::string> metrics);

  // Throws IoError naming file and line if a line is no such object.
  void add(std::span<const std::byte> bytes);
  // Returns what was read. Leaves out a last line without an end: it may be half of one. Throws
  // NotFoundError, with the known names, if no line has one of the metrics, unless it is allowed.
  RunStats finish(MissingMetric missing = MissingMetric::kRefuse);

 private:
  void read_line();
  void note(const JsonValue& line);

  std::string file_;
  std::string line_;  // the line so far
  std::int64_t lines_ = 0;
  std::set<std::string> names_;  // of numbers, without "validation_"
  RunStats stats_;
};

// The stats.jsonl of a run directory; any other path as it is.
std::string stats_file_of(const std::string& path, FileSystem& files = local_file_system());

// Reads a run directory, or a file like its stats.jsonl.
RunStats read_run_stats(const std::string& path, std::span<const std::string> metrics,
                        MissingMetric missing = MissingMetric::kRefuse,
                        FileSystem& files = local_file_system());

}  // namespace belfry
