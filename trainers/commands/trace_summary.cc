#include "belfry/trainers/commands/trace_summary.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

constexpr const char* kNoTrace =
    "this is no trace that Belfry has written (--trace_file, --trace_steps)";

constexpr double kMostOfALaunch = 1e24;  // of any number

// Throws InvalidArgument for what no launch has.
double number_of(const JsonValue& object, const char* key) {
  const double number = object.at(key).number();
  require(0 <= number && number <= kMostOfALaunch, key, " is ", number);
  return number;
}

// The time that intervals cover together, which may overlap.
double covered(std::vector<std::pair<double, double>> intervals) {
  std::ranges::sort(intervals);
  double sum = 0, end = -std::numeric_limits<double>::infinity();
  for (const auto& [from, to] : intervals) {
    sum += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return sum;
}

// Takes a file line by line: each event has one, and all of them as JSON values would take some
// seventy times the memory of the file.
class TraceReader {
 public:
  explicit TraceReader(const std::optional<UnitPeak>& peak) { made_.peak = peak; }

  TraceSummary run(std::string_view text) {
    bool ends = false;
    std::int64_t number = 0;
    for (const std::string_view line : split(text, '\n')) try {
        ++number;
        if (line == "]}") ends = true;
        if (line.starts_with(kData)) read_data(line.substr(kData.size()));
        if (line.starts_with("{\"ph\":")) read_event(line);
      } catch (const InvalidArgument&) {
        throw InvalidArgument(cat("line ", number, ": ", kNoTrace, ", or it is damaged"));
      }
    require(has_data_, kNoTrace);
    require(ends, "the trace is incomplete: its end is missing");
    require(made_.all.calls > 0,
            "the trace says of no launch what it computes: an older version wrote it; trace again");
    return finish();
  }

 private:
  static constexpr std::string_view kData = "\"otherData\":";
  static constexpr std::int64_t kMostWorkers = 1 << 20;

  // Without the comma at its end.
  static JsonValue parse(std::string_view line) {
    if (line.ends_with(',')) line.remove_suffix(1);
    return JsonValue::parse(line);
  }

  void read_data(std::string_view line) {
    const JsonValue data = parse(line);
    if (const JsonValue* const workers = data.find("workers")) {
      made_.processes = std::ssize(workers->items());
      for (const JsonValue& of_process : workers->items()) {
        const std::int64_t count = of_process.integer();
        require(0 <= count && count <= kMostWorkers, count, " workers cannot be");
        made_.workers += count;
      }
    }
    has_data_ = true;
  }

  void read_event(std::string_view line) {
    const JsonValue event = parse(line);
    if (event.at("ph").text() != "X") return;
    const JsonValue& args = event.at("args");
    const JsonValue* const phase = args.find("phase");
    if (!phase) return;  // a feed or a variable, which is no launch
    const double from = event.at("ts").number() * 1e-6, time = number_of(event, "dur") * 1e-6;
    begin_ = std::min(begin_, from);
    end_ = std::max(end_, from + time);
    const JsonValue* const device = args.find("device");  // a worker's part of a launch has none
    const bool on_gpu = device && device->text().find("/device:GPU:") != std::string::npos;
    if (on_gpu)
      gpus_[device->text()].emplace_back(from, from + time);
    else if (phase->text() != "messages")
      on_workers_ += time;
    TraceSum sum{.seconds = time};
    if (device) {
      sum.calls = 1;
      sum.flops = number_of(args, "flops");
      sum.bytes = number_of(args, "bytes");
      if (made_.peak && made_.peak->on_gpus == on_gpu) sum.floor = sum.flops / made_.peak->flops;
    }
    add(sum, args);
  }

  void add(const TraceSum& sum, const JsonValue& args) {
    for (TraceSum* const to : {&made_.all, &phases_[args.at("phase").text()],
                               &ops_[args.at("op").text()], &layers_[args.at("layer").text()]}) {
      to->calls += sum.calls;
      to->seconds += sum.seconds;
      to->flops += sum.flops;
      to->bytes += sum.bytes;
      to->floor += sum.floor;
    }
  }

  TraceSummary finish() {
    made_.all.name = "all launches";
    made_.seconds = end_ - begin_;
    made_.gpus = std::ssize(gpus_);
    if (on_workers_ == 0) made_.workers = 0;
    double busy = on_workers_;
    for (const auto& [gpu, intervals] : gpus_) busy += covered(intervals);
    phases_["wait"].seconds = std::max(0.0, made_.available() - busy);
    made_.phases = sorted(phases_);
    made_.ops = sorted(ops_);
    made_.layers = sorted(layers_);
    return std::move(made_);
  }

  static std::vector<TraceSum> sorted(const std::map<std::string, TraceSum, std::less<>>& sums) {
    std::vector<TraceSum> rows;
    for (const auto& [name, sum] : sums) {
      rows.push_back(sum);
      rows.back().name = name;
    }
    std::ranges::stable_sort(rows, std::greater(), &TraceSum::seconds);
    return rows;
  }

  TraceSummary made_;
  bool has_data_ = false;
  double begin_ = std::numeric_limits<double>::infinity(), end_ = 0, on_workers_ = 0;
  std::map<std::string, std::vector<std::pair<double, double>>> gpus_;  // by device
  std::map<std::string, TraceSum, std::less<>> phases_, ops_, layers_;
};

std::string or_none(bool is_known, double value, int digits) {
  return is_known ? rounded(value, digits) : "";
}

std::string table(const char* title, const std::vector<TraceSum>& rows, std::size_t most,
                  const TraceSummary& summary) {
  const std::size_t count = most > 0 ? std::min(most, rows.size()) : rows.size();
  int width = 24;
  for (std::size_t i = 0; i < count; ++i)
    width = std::max(width, static_cast<int>(std::min<std::size_t>(60, rows[i].name.size())));
  std::string text = cat(padded(title, -width));
  for (const char* const head : {"ms", "%", "calls", "GFLOP", "GB", "floor ms", "floor %"})
    text += padded(head, 10);
  text += "\n";
  for (const TraceSum& row : std::span(rows).first(count)) {
    const bool has_floor = row.floor > 0;
    text += padded(shown(row.name, 60), -width);
    for (const std::string& number :
         {rounded(1e3 * row.seconds, 3), rounded(100 * row.seconds / summary.available(), 1),
          row.calls > 0 ? cat(row.calls) : "", or_none(row.flops > 0, row.flops / 1e9, 3),
          or_none(row.bytes > 0, row.bytes / 1e9, 3), or_none(has_floor, 1e3 * row.floor, 3),
          or_none(has_floor, 100 * row.floor / row.seconds, 1)})
      text += padded(number, 10);
    text += "\n";
  }
  if (count < rows.size()) text += cat("and ", rows.size() - count, " more (--top=0 shows all)\n");
  return text;
}

JsonValue row_json(const TraceSum& row, const TraceSummary& summary) {
  const auto if_peak = [&](double value) { return summary.peak ? JsonValue(value) : JsonValue(); };
  return JsonValue::object()
      .set("name", row.name)
      .set("calls", row.calls)
      .set("ms", 1e3 * row.seconds)
      .set("share", row.seconds / summary.available())
      .set("flops", row.flops)
      .set("bytes", row.bytes)
      .set("floor_ms", if_peak(1e3 * row.floor))
      .set("floor_share", if_peak(row.floor / row.seconds));
}

JsonValue rows_json(const std::vector<TraceSum>& rows, const TraceSummary& summary) {
  JsonValue list = JsonValue::array();
  for (const TraceSum& row : rows) list.push(row_json(row, summary));
  return list;
}

}  // namespace

UnitPeak read_unit_peak(std::string_view text, const std::string& precision) {
  const JsonValue json = JsonValue::parse(text);
  const bool on_gpus = json.at("device_type").text() == "gpu";
  const JsonValue& products = json.at("matmul_tflops");
  const JsonValue* const product = products.find(precision);
  std::vector<std::string> names;
  for (const auto& [name, value] : products.members()) names.push_back(name);
  require(product, "has no peak of products in ", precision, ", only in ", join(names),
          " (--precision)");
  // Its figures are of all devices together.
  const double units = json.at(on_gpus ? "devices" : "threads").number();
  const UnitPeak peak{on_gpus, product->number() * 1e12 / units,
                      json.at("copy_gbs").number() * 1e9 / units};
  require(units > 0 && peak.flops > 0, "has a peak of 0");
  return peak;
}

TraceSummary sum_up_trace(std::string_view text, const std::optional<UnitPeak>& peak) {
  return TraceReader(peak).run(text);
}

std::string to_text(const TraceSummary& summary, std::size_t most) {
  const auto counted = [](std::int64_t count, const char* what) {
    return count > 0 ? cat(", ", count, " ", what, count > 1 ? "s" : "") : "";
  };
  std::string text = cat("a step of ", rounded(1e3 * summary.seconds, 3), " ms",
                         counted(summary.workers, "worker"), counted(summary.gpus, "GPU"),
                         summary.processes > 1 ? cat(", ", summary.processes, " processes") : "");
  if (summary.peak)
    text += cat("; peak of each ", summary.peak->on_gpus ? "GPU " : "worker ",
                rounded(summary.peak->flops / 1e9, 1), " GFLOP/s, ",
                rounded(summary.peak->bytes / 1e9, 1), " GB/s");
  text += "\n\n";
  text += table("phase", summary.phases, 0, summary);
  text += cat("\n", table("op", summary.ops, most, summary));
  text += cat("\n", table("layer", summary.layers, most, summary));
  return cat(text, "\n", table("sum", {summary.all}, 0, summary));
}

JsonValue to_json(const TraceSummary& summary) {
  JsonValue peak;
  if (summary.peak)
    peak = JsonValue::object()
               .set("device_type", summary.peak->on_gpus ? "gpu" : "cpu")
               .set("tflops", summary.peak->flops / 1e12)
               .set("gbs", summary.peak->bytes / 1e9);
  return JsonValue::object()
      .set("step_ms", 1e3 * summary.seconds)
      .set("processes", summary.processes)
      .set("workers", summary.workers)
      .set("gpus", summary.gpus)
      .set("peak", std::move(peak))
      .set("total", row_json(summary.all, summary))
      .set("phases", rows_json(summary.phases, summary))
      .set("ops", rows_json(summary.ops, summary))
      .set("layers", rows_json(summary.layers, summary));
}

}  // namespace belfry
