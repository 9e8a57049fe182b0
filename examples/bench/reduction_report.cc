#include "reduction_report.h"

#include <algorithm>
#include <cstdio>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// The dtype's name in nccl-tests.
const char* nccl_name(DType dtype) {
  switch (dtype) {
    case DType::kF16: return "half";
    case DType::kBF16: return "bfloat16";
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kI32: return "int32";
    default: return "none";
  }
}

const char* name_of(Reduction reduction) { return reduction == Reduction::kMean ? "avg" : "sum"; }

std::string microseconds(double seconds) {
  const double us = seconds * 1e6;
  return format(us >= 10000 ? "%.0f" : us >= 100 ? "%.1f" : "%.2f", us);
}

// Above kMost the limit is no limit, but the time to wake the threads that share its work.
std::string share(double of_limit) {
  constexpr double kMost = 1.25;
  return of_limit > kMost ? "-" : format("%.0f %%", 100 * of_limit);
}

// In GB/s of 1e9 bytes.
double algorithm_bandwidth(std::int64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

std::string columns(const ReductionTiming& timing, std::int64_t bytes, int devices) {
  return format("  %7s  %6.2f  %6.2f  %5s", microseconds(timing.seconds).c_str(),
                algorithm_bandwidth(bytes, timing.seconds),
                bus_bandwidth(bytes, timing.seconds, devices) / 1e9,
                timing.wrong ? cat(*timing.wrong).c_str() : "N/A");
}

// " -> collective (canonical), predicted 1.10 0.95 of it": of the measured time, out of place and
// in place.
std::string remarks(const ReductionResult& result) {
  std::string text;
  if (result.strategy == "auto") text += " -> " + result.resolved;
  if (result.canonical) text += " (canonical)";
  if (result.in_place.predicted && result.out_of_place.predicted)
    text += format(", predicted %.2f %.2f of it",
                   *result.out_of_place.predicted / result.out_of_place.seconds,
                   *result.in_place.predicted / result.in_place.seconds);
  return text;
}

// "# " before every line.
std::string commented(const std::string& lines) {
  std::string text;
  for (const std::string_view line : split(lines, '\n'))
    if (!line.empty()) text += cat("# ", line, "\n");
  return text;
}

// The first members of every record: what was measured.
JsonValue subject(const std::string& strategy, bool canonical, bool in_place, std::int64_t bytes,
                  const ReductionBenchOptions& options) {
  JsonValue json = JsonValue::object();
  json.set("strategy", strategy)
      .set("canonical", canonical)
      .set("devices", options.towers())
      .set("processes", options.place.size)
      .set("device_type", lower(options.devices[0].type.value_or("").str()))
      .set("dtype", name_of(options.dtype))
      .set("redop", name_of(options.reduction))
      .set("bytes", bytes)
      .set("in_place", in_place);
  return json;
}

// Sets the time and the figures that follow from it.
void set_times(JsonValue& json, std::int64_t bytes, double seconds, double limit_seconds,
               std::optional<std::int64_t> wrong, const ReductionBenchOptions& options) {
  const int devices = options.towers();
  json.set("time_us", seconds * 1e6)
      .set("algbw", algorithm_bandwidth(bytes, seconds))
      .set("busbw", bus_bandwidth(bytes, seconds, devices) / 1e9)
      .set("wrong", wrong ? JsonValue(*wrong) : JsonValue())
      .set("limit_us", limit_seconds * 1e6)
      .set("agg_iters", options.aggregate)
      .set("deterministic", options.deterministic);
}

JsonValue record(const ReductionResult& result, bool in_place, const ReductionBench& bench,
                 const ReductionBenchOptions& options) {
  const ReductionTiming& timing = in_place ? result.in_place : result.out_of_place;
  JsonValue json = subject(result.strategy, result.canonical, in_place, bench.bytes, options);
  set_times(json, bench.bytes, timing.seconds, bench.limit_seconds, timing.wrong, options);
  if (timing.predicted || result.strategy == "auto") json.set("resolved", result.resolved);
  if (timing.predicted) json.set("predicted_us", *timing.predicted * 1e6);
  return json;
}

}  // namespace

std::string ReductionTable::head() const {
  const char* const kNames =
      "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s  %9s  %5s  %s\n";
  return cat("#\n",
             format("# %10s  %12s  %8s  %6s  %6s           out-of-place                       "
                    "in-place\n",
                    "", "", "", "", ""),
             format(kNames, "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                    "#wrong", "time", "algbw", "busbw", "#wrong", "limit", "share", "strategy"),
             format(kNames, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                    "(GB/s)", "(GB/s)", "", "(us)", "", ""));
}

std::string ReductionTable::lines(const ReductionBench& bench) {
  const int devices = options_.towers();
  std::string text;
  for (const ReductionResult& result : bench.results) {
    if (!result.refusal.empty()) {
      text += cat("# ", result.strategy, " refused: ", result.refusal, "\n");
      continue;
    }
    auto average = std::ranges::find(averages_, result.strategy, &Average::strategy);
    if (average == averages_.end())
      average = averages_.insert(average, Average{.strategy = result.strategy});
    for (const ReductionTiming* timing : {&result.out_of_place, &result.in_place}) {
      average->sum += bus_bandwidth(bench.bytes, timing->seconds, devices) / 1e9;
      ++average->count;
      wrong_ += timing->wrong.value_or(0);
      checked_ = checked_ || timing->wrong;
    }
    text += commented(result.reason);
    text += cat(format("%12lld  %12lld  %8s  %6s  %6d", static_cast<long long>(bench.bytes),
                       static_cast<long long>(bench.elements), nccl_name(options_.dtype),
                       name_of(options_.reduction), -1),
                columns(result.out_of_place, bench.bytes, devices),
                columns(result.in_place, bench.bytes, devices),
                format("  %9s  %5s  ", microseconds(bench.limit_seconds).c_str(),
                       share(bench.limit_seconds / result.in_place.seconds).c_str()),
                result.strategy, remarks(result), "\n");
  }
  return text;
}

std::string ReductionTable::summary() const {
  std::string text =
      checked_ ? cat("# Out of bounds values : ", wrong_, wrong_ == 0 ? " OK\n" : " FAILED\n")
               : "# Out of bounds values : not checked\n";
  for (const Average& average : averages_)
    text += cat(format("# Avg bus bandwidth    : %g", average.sum / average.count),
                averages_.size() > 1 ? "  " + average.strategy : "", "\n");
  return text;
}

void append_json(const ReductionBench& bench, const ReductionBenchOptions& options,
                 JsonValue& list) {
  for (const ReductionResult& result : bench.results)
    if (result.refusal.empty())
      for (const bool in_place : {false, true}) list.push(record(result, in_place, bench, options));
}

std::string update_head() {
  const char* const kNames = "# %10s  %12s  %8s  %6s  %-14s  %12s  %14s  %8s  %6s  %6s\n";
  return cat("#\n",
             format(kNames, "size", "count", "type", "redop", "strategy", "fuse_updates",
                    "share_replicas", "time", "faster", "#wrong"),
             format(kNames, "(B)", "(elements)", "", "", "", "", "", "(us)", "(times)", ""));
}

std::string update_lines(const UpdateBench& bench, const std::string& strategy,
                         const ReductionBenchOptions& options) {
  std::string text;
  for (const UpdateCell& cell : bench.cells)
    text += format("%12lld  %12lld  %8s  %6s  %-14s  %12d  %14d  %8s  %6.2f  %6s\n",
                   static_cast<long long>(bench.bytes), static_cast<long long>(bench.elements),
                   nccl_name(options.dtype), name_of(options.reduction), strategy.c_str(),
                   cell.fuse_updates, cell.share_replicas, microseconds(cell.seconds).c_str(),
                   cell.ratio, cell.wrong ? cat(*cell.wrong).c_str() : "N/A");
  return text;
}

void append_json(const UpdateBench& bench, const std::string& strategy,
                 const ReductionBenchOptions& options, JsonValue& list) {
  const bool canonical =
      make_strategy(strategy)->canonical(static_cast<int>(options.devices.size()));
  for (const UpdateCell& cell : bench.cells) {
    JsonValue json = subject(strategy, canonical, true, bench.bytes, options);
    json.set("fuse_updates", cell.fuse_updates).set("share_replicas", cell.share_replicas);
    set_times(json, bench.bytes, cell.seconds, bench.limit_seconds, cell.wrong, options);
    json.set("ratio", cell.ratio);
    list.push(std::move(json));
  }
}

std::string to_csv(const JsonValue& list) {
  std::vector<std::string> names;
  for (const JsonValue& record : list.items())
    for (const auto& [name, value] : record.members())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  if (names.empty()) return "";
  std::string text = join(names, ",") + "\n";
  for (const JsonValue& record : list.items()) {
    std::vector<std::string> values;
    for (const std::string& name : names) {
      const JsonValue* const value = record.find(name);
      values.push_back(!value || value->kind() == JsonValue::Kind::kNull ? ""
                       : value->kind() == JsonValue::Kind::kString       ? value->text()
                                                                         : value->str());
    }
    text += join(values, ",") + "\n";
  }
  return text;
}

}  // namespace belfry
