#include "belfry/trainers/commands/run_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/is_locked.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/run_stats.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

constexpr std::string_view kOfValidation = "validation_", kAbsent = "-";
constexpr char kSeedOption[] = "seed";
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct RunMetric {
  bool found = false;  // the values may still be NaN
  double last = kUnknown, best = kUnknown;
  std::int64_t best_step = 0;
};

struct ListedRun {
  std::string path, program = "(unknown)", state = "killed", hash;
  std::map<std::string, std::string> options;
  std::int64_t steps = 0;
  std::string error;
  std::vector<RunMetric> metrics;
};

// Runs whose options are equal but for the seed; the last one of each seed.
struct RunGroup {
  std::map<std::string, std::string> options;
  std::vector<const ListedRun*> runs;
};

std::string option_text(const JsonValue& value) {
  return value.kind() == JsonValue::Kind::kString ? value.text() : value.str();
}

void read_config(ListedRun& run, bool (*counts)(std::string_view), FileSystem& files) {
  const std::optional<JsonValue> config = run_config(files, run.path);
  require<IoError>(config.has_value(), run.path, "/", kConfigFile, " is none of a run");
  const auto note = [&](const std::string& name, const JsonValue& value) {
    if (counts(name)) run.options.emplace(name, option_text(value));
  };
  for (const auto& [name, value] : config->members())
    if (name != kChosen) note(name, value);
  for (const auto& [name, value] : config->at(kChosen).members())
    if (name == kProgramMember)
      run.program = value.text();
    else
      note(name, value);
}

void read_summary(ListedRun& run, FileSystem& files) {
  const std::string file = cat(run.path, "/", kSummaryFile);
  if (files.target_kind(file) != FileKind::kFile) return;
  const std::vector<std::byte> bytes = files.read(file, kMostJsonBytes);
  const JsonValue summary =
      JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const JsonValue& error = summary.at("error");
  const bool failed = error.kind() != JsonValue::Kind::kNull;
  run.program = summary.at("program").text();
  run.state = failed ? "failed" : summary.at("finished").str() == "true" ? "finished" : "stopped";
  if (failed) run.error = option_text(error.at("what"));
  if (const JsonValue* const hash = summary.find("params_hash")) run.hash = option_text(*hash);
}

// The name in a line of training.
std::string training_name(const std::string& metric) {
  return metric.starts_with(kOfValidation) ? metric.substr(kOfValidation.size()) : metric;
}

RunMetric metric_of(std::span<const StatsPoint> points, bool largest) {
  RunMetric metric;
  for (const StatsPoint& point : points) {
    metric.found = true;
    metric.last = point.value;
    const bool is_better = largest ? point.value > metric.best : point.value < metric.best;
    if (std::isnan(metric.best) ? std::isfinite(point.value) : is_better)
      metric.best = point.value, metric.best_step = point.step;
  }
  return metric;
}

void read_metrics(ListedRun& run, std::span<const BestMetric> metrics, FileSystem& files) {
  run.metrics.resize(metrics.size());
  if (files.target_kind(stats_file_of(run.path, files)) != FileKind::kFile) return;
  std::vector<std::string> names = {"loss"};  // of each step
  for (const BestMetric& metric : metrics) names.push_back(training_name(metric.name));
  const RunStats stats = read_run_stats(run.path, names, MissingMetric::kAllow, files);
  for (const std::vector<StatsPoint>* points :
       {&stats.metrics[0].training, &stats.metrics[0].validation})
    if (!points->empty()) run.steps = std::max(run.steps, points->back().step);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const MetricStats& found = stats.metrics[i + 1];
    const bool validates = metrics[i].name.starts_with(kOfValidation);
    run.metrics[i] = metric_of(validates ? found.validation : found.training, metrics[i].largest);
  }
}

ListedRun read_run(const std::string& path, std::span<const BestMetric> metrics,
                   bool (*counts)(std::string_view), FileSystem& files) {
  ListedRun run{.path = path};
  run.metrics.resize(metrics.size());
  try {
    // At first, as a run that ends meanwhile writes its summary. A lock that a killed run has left
    // is not held.
    const bool running = is_locked(cat(path, "/", kRunLock));
    read_config(run, counts, files);
    read_summary(run, files);
    if (running) run.state = "running", run.hash = "";
    read_metrics(run, metrics, files);
  } catch (const Error& error) {
    log_warning(path, " cannot be read: ", error.what());
    run.state = "unreadable", run.error = error.what();
  }
  return run;
}

bool any_has(std::span<const ListedRun> runs, std::size_t metric) {
  return std::ranges::any_of(runs, [&](const ListedRun& run) { return run.metrics[metric].found; });
}

// Those of the metrics that runs have. Without a wish: of the validation, or else of the training.
std::vector<std::size_t> shown_metrics(std::span<const ListedRun> runs,
                                       std::span<const BestMetric> metrics, bool wished) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (!wished && i == metrics.size() / 2 && !shown.empty()) break;
    if (any_has(runs, i)) shown.push_back(i);
  }
  return shown;
}

std::string option_of(const ListedRun& run, const std::string& name) {
  const auto found = run.options.find(name);
  return found == run.options.end() ? std::string(kAbsent) : found->second;
}

// The options in which runs differ, in alphabetical order, and the seed last.
std::vector<std::string> differing_options(std::span<const ListedRun> runs) {
  std::map<std::string, bool> names;
  for (const ListedRun& run : runs)
    for (const auto& [name, value] : run.options) names[name];
  std::vector<std::string> differing;
  for (const auto& [name, unused] : names)
    if (name != kSeedOption && std::ranges::any_of(runs, [&](const ListedRun& run) {
          return option_of(run, name) != option_of(runs[0], name);
        }))
      differing.push_back(name);
  if (std::ranges::any_of(runs, [&](const ListedRun& run) {
        return option_of(run, kSeedOption) != option_of(runs[0], kSeedOption);
      }))
    differing.emplace_back(kSeedOption);
  return differing;
}

std::vector<RunGroup> groups_of(std::span<const ListedRun> runs) {
  std::vector<RunGroup> groups;
  for (const ListedRun& run : runs) {
    if (run.state != "finished") continue;
    std::map<std::string, std::string> options = run.options;
    options.erase(kSeedOption);
    auto found = std::ranges::find(groups, options, &RunGroup::options);
    if (found == groups.end()) found = groups.insert(found, {.options = options});
    const auto same_seed = [&](const ListedRun* other) {
      return option_of(*other, kSeedOption) == option_of(run, kSeedOption);
    };
    std::erase_if(found->runs, same_seed);
    found->runs.push_back(&run);
  }
  std::erase_if(groups, [](const RunGroup& group) { return group.runs.size() < 2; });
  return groups;
}

bool all_have(const RunGroup& group, std::size_t metric) {
  return std::ranges::all_of(group.runs,
                             [&](const ListedRun* run) { return run->metrics[metric].found; });
}

struct MeanAndDeviation {
  double mean = kUnknown, deviation = kUnknown;
};

MeanAndDeviation over(const RunGroup& group, std::size_t metric, double RunMetric::*value) {
  const auto count = static_cast<double>(group.runs.size());
  const double first = group.runs[0]->metrics[metric].*value;  // of equal values it is the mean
  double sum = 0, squares = 0;
  for (const ListedRun* run : group.runs) sum += run->metrics[metric].*value - first;
  const double mean = first + sum / count;
  for (const ListedRun* run : group.runs)
    squares += std::pow(run->metrics[metric].*value - mean, 2);
  return {mean, std::sqrt(squares / (count - 1))};
}

// Columns as wide as their widest cell.
std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += cat(i == 0 ? "" : "  ", belfry::padded(row[i], -widths[i]));
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string number_text(const RunMetric& metric, double RunMetric::*value) {
  return metric.found ? significant(metric.*value) : std::string(kAbsent);
}

// The runs of one program.
class ProgramTable {
 public:
  ProgramTable(std::span<const ListedRun> runs, std::span<const BestMetric> metrics, bool wished)
      : runs_(runs),
        metrics_(metrics),
        shown_(shown_metrics(runs, metrics, wished)),
        differing_(differing_options(runs)),
        groups_(groups_of(runs)) {}

  std::string text() const {
    return cat(runs_[0].program, ": ", runs_.size(), runs_.size() == 1 ? " run\n" : " runs\n",
               table_text(run_rows()),
               groups_.empty() ? ""
                               : cat("\nmean +- sample deviation over finished runs that differ in "
                                     "nothing but the seed\n",
                                     table_text(group_rows())));
  }

  JsonValue json() const {
    JsonValue runs = JsonValue::array(), groups = JsonValue::array();
    for (const ListedRun& run : runs_) runs.push(run_json(run));
    for (const RunGroup& group : groups_) groups.push(group_json(group));
    return JsonValue::object()
        .set("program", runs_[0].program)
        .set("differ", JsonValue::array(differing_))
        .set("runs", std::move(runs))
        .set("groups", std::move(groups));
  }

 private:
  std::vector<std::vector<std::string>> run_rows() const {
    std::vector<std::vector<std::string>> rows{{"run", "state"}};
    rows[0].insert(rows[0].end(), differing_.begin(), differing_.end());
    rows[0].emplace_back("steps");
    add_names(rows[0]);
    rows[0].emplace_back("hash");
    for (const ListedRun& run : runs_) {
      std::vector<std::string>& row = rows.emplace_back();
      row = {shown(run.path), run.state};
      for (const std::string& name : differing_) row.push_back(shown(option_of(run, name)));
      row.push_back(cat(run.steps));
      for (const std::size_t i : shown_) {
        row.push_back(number_text(run.metrics[i], &RunMetric::last));
        row.push_back(number_text(run.metrics[i], &RunMetric::best));
      }
      row.push_back(run.hash);
    }
    return rows;
  }

  std::vector<std::vector<std::string>> group_rows() const {
    std::vector<std::vector<std::string>> rows{{"runs"}};
    for (const std::string& name : differing_)
      if (name != kSeedOption) rows[0].push_back(name);
    add_names(rows[0]);
    for (const RunGroup& group : groups_) {
      std::vector<std::string>& row = rows.emplace_back();
      row = {cat(group.runs.size())};
      for (const std::string& name : differing_)
        if (name != kSeedOption) row.push_back(shown(option_of(*group.runs[0], name)));
      for (const std::size_t i : shown_)
        for (const auto value : {&RunMetric::last, &RunMetric::best}) {
          const MeanAndDeviation both = over(group, i, value);
          row.push_back(all_have(group, i)
                            ? cat(significant(both.mean), " +- ", significant(both.deviation))
                            : std::string(kAbsent));
        }
    }
    return rows;
  }

  void add_names(std::vector<std::string>& row) const {
    for (const std::size_t i : shown_) {
      row.push_back(metrics_[i].name);
      row.emplace_back("best");
    }
  }

  JsonValue run_json(const ListedRun& run) const {
    JsonValue options = JsonValue::object(), metrics = JsonValue::object();
    for (const auto& [name, value] : run.options) options.set(name, value);
    for (const std::size_t i : shown_)
      metrics.set(metrics_[i].name, JsonValue::object()
                                        .set("last", run.metrics[i].last)
                                        .set("best", run.metrics[i].best)
                                        .set("best_step", run.metrics[i].best_step));
    return JsonValue::object()
        .set("run", run.path)
        .set("state", run.state)
        .set("options", std::move(options))
        .set("steps", run.steps)
        .set("params_hash", run.hash.empty() ? JsonValue() : JsonValue(run.hash))
        .set("error", run.error.empty() ? JsonValue() : JsonValue(run.error))
        .set("metrics", std::move(metrics));
  }

  JsonValue group_json(const RunGroup& group) const {
    JsonValue options = JsonValue::object(), metrics = JsonValue::object();
    for (const std::string& name : differing_)
      if (name != kSeedOption) options.set(name, option_of(*group.runs[0], name));
    const auto both = [&](std::size_t i, double RunMetric::*value) {
      const MeanAndDeviation found = over(group, i, value);
      return JsonValue::object().set("mean", found.mean).set("deviation", found.deviation);
    };
    for (const std::size_t i : shown_)
      metrics.set(metrics_[i].name, JsonValue::object()
                                        .set("last", both(i, &RunMetric::last))
                                        .set("best", both(i, &RunMetric::best)));
    std::vector<std::string> runs;
    for (const ListedRun* run : group.runs) runs.push_back(run->path);
    return JsonValue::object()
        .set("options", std::move(options))
        .set("runs", JsonValue::array(runs))
        .set("metrics", std::move(metrics));
  }

  std::span<const ListedRun> runs_;
  std::span<const BestMetric> metrics_;
  const std::vector<std::size_t> shown_;  // of metrics_
  const std::vector<std::string> differing_;
  const std::vector<RunGroup> groups_;
};

void add_runs_below(const std::string& folder, FileSystem& files, std::vector<std::string>& found) {
  if (run_config(files, folder)) {
    found.push_back(folder);
    return;
  }
  for (const std::string& name : files.list(folder)) {
    const std::string path = cat(folder, folder.ends_with('/') ? "" : "/", name);
    if (files.kind(path) == FileKind::kDirectory) add_runs_below(path, files, found);
  }
}

}  // namespace

std::vector<std::string> runs_below(std::span<const std::string> folders, FileSystem& files) {
  std::vector<std::string> all;
  std::set<std::string> known;  // absolute
  for (const std::string& folder : folders) {
    require<NotFoundError>(files.target_kind(folder) == FileKind::kDirectory, folder,
                           ": there is no such folder");
    std::vector<std::string> found;
    add_runs_below(folder, files, found);
    require<NotFoundError>(!found.empty(), folder,
                           " has no run directory, which --run_dir names, at any depth");
    for (std::string& path : found)
      if (known.insert(files.resolve(path)).second) all.push_back(std::move(path));
  }
  return all;
}

Listing tabulate_runs(std::span<const std::string> paths, std::span<const BestMetric> metrics,
                      bool (*counts)(std::string_view option), FileSystem& files) {
  const std::vector<BestMetric> usual = {{"validation_loss", false},
                                         {"validation_accuracy", true},
                                         {"loss", false},
                                         {"accuracy", true}};
  const bool wished = !metrics.empty();
  if (!wished) metrics = usual;
  std::vector<ListedRun> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path, metrics, counts, files));
  for (std::size_t i = 0; wished && i < metrics.size(); ++i)
    require<NotFoundError>(any_has(runs, i), "no run has the metric '", shown(metrics[i].name),
                           "'; ", kStatsFile, " of a run has their names");
  std::ranges::stable_sort(runs, {}, &ListedRun::program);
  Listing listing;
  JsonValue programs = JsonValue::array();
  for (auto first = runs.begin(); first != runs.end();) {
    const auto last =
        std::find_if(first, runs.end(), [&](auto& run) { return run.program != first->program; });
    const ProgramTable table({first, last}, metrics, wished);
    listing.text += cat(listing.text.empty() ? "" : "\n", table.text());
    programs.push(table.json());
    first = last;
  }
  listing.json.set("programs", std::move(programs));
  return listing;
}

}  // namespace belfry
