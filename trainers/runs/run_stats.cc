#include "belfry/trainers/runs/run_stats.h"

#include <limits>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace {

constexpr std::string_view kValidation = "validation_";
constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
constexpr std::size_t kMostNames = 1000;  // kept for a hint

// A number, or null, which is NaN. Earlier versions wrote "nan", "inf" or "-inf".
double value_of(const JsonValue& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  if (json.kind() == JsonValue::Kind::kNull) return kNotANumber;
  if (json.kind() != JsonValue::Kind::kString) return json.number();
  if (json.text() == "inf") return kInfinity;
  if (json.text() == "-inf") return -kInfinity;
  require(json.text() == "nan", json.where(), "expected a number, or null");
  return kNotANumber;
}

void add_point(std::vector<StatsPoint>& points, std::int64_t step, const JsonValue* value) {
  if (!value) return;
  while (!points.empty() && points.back().step >= step) points.pop_back();
  points.push_back({step, value_of(*value)});
}

// "training" for "runs/training/".
std::string last_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

StatsReader::StatsReader(std::string file, std::span<const std::string> metrics)
    : file_(std::move(file)) {
  for (const std::string& metric : metrics) stats_.metrics.push_back({.metric = metric});
}

void StatsReader::add(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    line_ += text.substr(0, end);
    require<IoError>(line_.size() <= kMostLineBytes, file_, ": line ", lines_ + 1,
                     " has more than ", kMostLineBytes, " bytes");
    if (end == text.npos) return;
    read_line();
    line_.clear();
    text.remove_prefix(end + 1);
  }
}

void StatsReader::read_line() try {
  ++lines_;
  if (line_.find_first_not_of(" \r\t") != line_.npos) note(JsonValue::parse(line_));
} catch (const InvalidArgument& error) {
  throw IoError(cat(file_, ": line ", lines_, " is none of a run's stats: ", error.what()));
}

void StatsReader::note(const JsonValue& line) {
  const std::int64_t step = line.at("step").integer();
  for (MetricStats& stats : stats_.metrics) {
    add_point(stats.training, step, line.find(stats.metric));
    add_point(stats.validation, step, line.find(cat(kValidation, stats.metric)));
  }
  if (names_.size() >= kMostNames) return;
  for (const auto& [name, value] : line.members())
    names_.insert(name.starts_with(kValidation) ? name.substr(kValidation.size()) : name);
}

RunStats StatsReader::finish(MissingMetric missing) {
  names_.erase("step");
  for (const MetricStats& stats : stats_.metrics)
    require<NotFoundError>(missing == MissingMetric::kAllow || !stats.training.empty() ||
                               !stats.validation.empty() || names_.empty(),
                           file_, ": no line has the metric '", shown(stats.metric),
                           "'; there are ", shown(join(names_), 400));
  return std::move(stats_);
}

std::string stats_file_of(const std::string& path, FileSystem& files) {
  const bool is_run = files.target_kind(path) == FileKind::kDirectory;
  return is_run ? cat(path, "/", kStatsFile) : path;
}

RunStats read_run_stats(const std::string& path, std::span<const std::string> metrics,
                        MissingMetric missing, FileSystem& files) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const std::string file = stats_file_of(path, files);
  const auto in = files.open(file);
  StatsReader reader(file, metrics);
  std::vector<std::byte> chunk(kChunk);
  for (std::size_t count = kChunk; count == kChunk;) {
    count = in->read(chunk);
    reader.add(std::span(chunk).first(count));
  }
  RunStats stats = reader.finish(missing);
  stats.name = last_name(files.resolve(path));
  return stats;
}

}  // namespace belfry
