#include "belfry/trainers/commands/simulate_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/plot_file.h"
#include "belfry/trainers/commands/simulation_report.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/commands/trace_summary.h"
#include "belfry/trainers/commands/traced_times.h"
#include "belfry/trainers/core/auto_options.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

constexpr int kMostSimulatedDevices = 1 << 20;
constexpr double kHour = 3600, kMebi = 1 << 20;

// A measurement of a user: that many devices train that many samples per second.
struct MeasuredRate {
  int devices = 0;
  double samples_per_second = 0;
};

struct SimulateFlags {
  std::string help, workload, times, machine, json, plot, trace;
  std::vector<std::int64_t> devices = {1, 2, 4, 8};
  std::vector<std::int64_t> bytes;
  std::vector<std::string> without;
  std::optional<MeasuredRate> measured;
  SimulatedTraining training;
  DeviceFaults faults;
  bool explain = false;
  bool as_planned = false;   // the batch of a plan, not --batch_size
  bool has_buckets = false;  // --bucket_mb was given
};

std::vector<std::int64_t> read_devices(const WrittenFlag& flag) {
  std::vector<std::int64_t> devices;
  for (const std::string_view item : split(flag.value, ',')) {
    const auto count = parse_number<int>(flag.written, item);
    if (count < 1 || count > kMostSimulatedDevices)
      refuse_flag(flag, ": numbers of devices are between 1 and ", kMostSimulatedDevices);
    devices.push_back(count);
  }
  return devices;
}

std::vector<std::int64_t> read_bytes(const WrittenFlag& flag) {
  std::vector<std::int64_t> sizes;
  for (const std::string_view item : split(flag.value, ','))
    sizes.push_back(parse_bytes(flag.written, item));
  return sizes;
}

std::vector<double> read_intervals(const WrittenFlag& flag) {
  std::vector<double> seconds;
  for (const std::string_view item : split(flag.value, ',')) {
    seconds.push_back(parse_number<double>(flag.written, item));
    if (!(seconds.back() > 0)) refuse_flag(flag, ": seconds between saves are above 0");
  }
  return seconds;
}

MeasuredRate read_measured(const WrittenFlag& flag) {
  const std::size_t colon = flag.value.find(':');
  if (colon == std::string::npos) refuse_flag(flag, " is not DEVICES:SAMPLES_PER_SECOND, as 1:417");
  const std::string_view text = flag.value;
  const MeasuredRate rate{parse_number<int>(flag.written, text.substr(0, colon)),
                          parse_number<double>(flag.written, text.substr(colon + 1))};
  if (rate.devices < 1 || !(rate.samples_per_second > 0))
    refuse_flag(flag, ": devices and samples per second are above 0");
  return rate;
}

std::vector<std::string> read_without(const WrittenFlag& flag) {
  static const std::vector<std::string> known = {"latency", "contention", "overlap", "jitter"};
  std::vector<std::string> parts;
  for (const std::string_view part : split(flag.value, ',')) {
    if (std::ranges::find(known, part) == known.end())
      refuse_flag(flag, ": the model has no part '", shown(part), "'", did_you_mean(part, known),
                  " (", join(known), ")");
    parts.emplace_back(part);
  }
  return parts;
}

int bytes_of_type(const WrittenFlag& flag) {
  if (flag.value == "f32" || flag.value == "tf32") return 4;
  if (flag.value == "f16" || flag.value == "bf16") return 2;
  refuse_flag(flag, " is none of f32, f16 and bf16");
}

bool above_zero(double value) { return value > 0; }
bool at_least_zero(double value) { return value >= 0; }

void add_training_flags(FlagParser& parser, SimulateFlags& flags) {
  SimulatedTraining& training = flags.training;
  parser.group("Training");
  parser.add("--batch_size", training.batch, 1, 1 << 30, "N",
             "samples of a device at a time [1, or as planned]");
  parser.add("--accumulation", training.accumulation, 1, 1 << 20, "N", "batches per step [1]");
  parser.add(
      "--precision",
      [&](const WrittenFlag& flag) {
        training.precision = flag.value;
        training.element_bytes = bytes_of_type(flag);
      },
      "f32|tf32|f16|bf16", "of the arithmetic, and of activations [f32]");
  parser.add_parsed("--gradients", training.gradient_bytes, bytes_of_type, "f32|f16|bf16",
                    "type of gradients that are sent [f32]");
  parser.add("--slots", training.slots, 0, 16, "N",
             "values that the optimizer keeps per parameter [1]");
  parser.add_parsed(
      "--allreduce", training.algorithm,
      [](std::string_view name) { return sum_algorithm_called(name); }, "NAME",
      "how gradients are summed: fastest, ring, tree, hierarchical, switch, host, servers "
      "[fastest]");
  parser.add("--servers", training.servers, 1, kMostSimulatedDevices, "N",
             "hosts that hold parameters, with --allreduce=servers [all]");
  parser.add_parsed(
      "--bucket_mb", training.bucket_bytes,
      [](const WrittenFlag& flag) {
        double megabytes = 0;
        read_number(flag, "a number of at least 0", at_least_zero, megabytes);
        return megabytes * kMebi;
      },
      "X",
      "gradients are summed X MiB at a time; 0: those of each layer [4; of a plan: as its program "
      "does with a process per device]");
  parser.add("--overlap", training.overlap, "true|false",
             "sums begin during the backward pass [true]");
  parser.add("--processes_per_host", training.per_host, 1, kMostSimulatedDevices, "N",
             "devices that are used of each host [all]");
}

void add_machine_flags(FlagParser& parser, SimulateFlags& flags) {
  parser.group("Machine");
  parser.add("--machine", flags.machine, "FILE",
             "the machine, e.g. docs/machines/dgx2-v100.json [needed]");
  parser.add_parsed("--devices", flags.devices, read_devices, "N,N,...",
                    "numbers of devices [1,2,4,8]");
  parser.add_parsed(
      "--measured", flags.measured, read_measured, "N:RATE",
      "N devices train RATE samples per second: arithmetic gets the speed that explains it [the "
      "peak of the device]");
  parser.add_number("--slowness", flags.training.slowness, "a number above 0", above_zero, "X",
                    "arithmetic takes X times as long as at the peak of the device [1]");
  parser.add_parsed(
      "--kernel_us", flags.training.kernel,
      [](const WrittenFlag& flag) {
        double microseconds = 0;
        read_number(flag, "a number of at least 0", at_least_zero, microseconds);
        return microseconds * 1e-6;
      },
      "X", "time that each kernel takes in addition, however small the batch [0]");
  parser.add("--trace", flags.times, "FILE",
             "times of launches of a plan: what the same program has written on one device for "
             "--trace_file=FILE [FLOPs and bytes say them]");
  parser.add_number("--jitter", flags.training.jitter, "a number of at least 0", at_least_zero, "X",
                    "standard deviation of the time that devices take for the same batch, as a "
                    "share of that time; all wait for the slowest [0]");
  parser.add_parsed("--bytes", flags.bytes, read_bytes, "N,N,...",
                    "prints the time of one all-reduce of each size instead [none]");
  parser.add_parsed("--without", flags.without, read_without, "NAMES",
                    "leaves parts of the model out: latency, contention, overlap, jitter [none]");
}

void add_fault_flags(FlagParser& parser, SimulateFlags& flags) {
  parser.group("Faults");
  parser.add_parsed(
      "--device_mtbf_hours", flags.faults.between,
      [](const WrittenFlag& flag) {
        double hours = 0;
        read_number(flag, "a number above 0", above_zero, hours);
        return hours * kHour;
      },
      "X", "mean time between faults of one device; adds the goodput [no faults]");
  flags.faults.save = 30;
  flags.faults.restart = 120;
  parser.add_number("--save_seconds", flags.faults.save, "a number above 0", above_zero, "X",
                    "that a save takes from training [30]");
  parser.add_number("--restart_seconds", flags.faults.restart, "a number of at least 0",
                    at_least_zero, "X", "from a fault until training goes on [120]");
  parser.add_parsed("--save_every", flags.faults.intervals, read_intervals, "X,X,...",
                    "seconds between saves to state the goodput of [the best interval alone]");
}

SimulateFlags parse_simulate(std::span<const char* const> arguments, const std::string& program) {
  SimulateFlags flags;
  FlagParser parser(
      "Predicts training on machines that are not here: the time of a step, throughput, what "
      "bounds it, and memory, by number of devices. docs/simulator.md says how well.",
      program);
  parser.add_argument(
      "WORKLOAD", flags.workload,
      "what a replica computes: a file of docs/workloads, or what PROGRAM --dry_run --json=FILE "
      "(its plan) or --summary --json=FILE has written; without it, --bytes says what is summed");
  add_machine_flags(parser, flags);
  add_training_flags(parser, flags);
  add_fault_flags(parser, flags);
  parser.group("Output");
  parser.add("--explain", flags.explain, "says what the step of the most devices waits for");
  parser.add("--json", flags.json, "FILE", "write all figures there; -: to stdout [none]");
  parser.add("--plot", flags.plot, "FILE",
             "draw throughput by devices: FILE.svg, FILE.png or FILE.pdf, with its script FILE.gp "
             "beside it [none]");
  parser.add("--trace_file", flags.trace, "FILE",
             "write the step of the most devices as a timeline for Perfetto [none]");
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  require<FlagError>(!flags.machine.empty(), program, " needs --machine=FILE (see --help)");
  require<FlagError>(flags.workload.empty() != flags.bytes.empty(), program,
                     " needs either a WORKLOAD or --bytes");
  require<FlagError>(
      flags.training.servers == 0 || flags.training.algorithm == SumAlgorithm::kServers,
      "--servers is for --allreduce=servers");
  require<FlagError>(
      flags.bytes.empty() ||
          (flags.trace.empty() && flags.plot.empty() && !flags.explain && !flags.measured &&
           flags.training.servers == 0 && flags.faults.between == 0),
      "--bytes prints times of all-reduces alone: --trace_file, --plot, --explain, "
      "--measured, --servers and --device_mtbf_hours need a WORKLOAD");
  require<FlagError>(!flags.measured || !parser.given("--slowness"),
                     "--measured says how slow arithmetic is, and so does --slowness: give one");
  require<FlagError>(
      flags.times.empty() || (!flags.workload.empty() && !flags.measured &&
                              !parser.given("--slowness") && !parser.given("--kernel_us")),
      "--trace says how long launches of a plan take: it needs one as WORKLOAD, and --measured, "
      "--slowness and --kernel_us have no use");
  flags.as_planned = !parser.given("--batch_size");
  flags.has_buckets = parser.given("--bucket_mb");
  return flags;
}

// What `make` makes of the text of a file. Errors about the content name the file.
template <class Make>
auto read_content(const std::string& path, std::uint64_t most_bytes, const Make& make) {
  const std::vector<std::byte> bytes = local_file_system().read(path, most_bytes);
  try {
    return make(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  } catch (const Error& error) {
    throw InvalidArgument(cat(path, ": ", error.what()));
  }
}

template <class Make>
auto read_description(const std::string& path, const Make& make) {
  return read_content(path, kMostJsonBytes,
                      [&](std::string_view text) { return make(JsonValue::parse(text)); });
}

void leave_out(const std::vector<std::string>& parts, ClusterDescription& cluster,
               SimulatedTraining& training) {
  for (const std::string& part : parts) {
    if (part == "latency") cluster.link.latency = cluster.network.latency = cluster.launch = 0;
    if (part == "contention") {
      cluster.network.rate = cluster.network.rate.times(cluster.devices_per_host);
      cluster.devices_per_feed = 1;
      cluster.crowding = 1;
    }
    if (part == "overlap") training.overlap = false;
    if (part == "jitter") training.jitter = 0;
  }
}

// A line and a JSON row for the all-reduce of each size and number of devices.
void add_sums(const SimulateFlags& flags, const ClusterDescription& cluster, std::string& text,
              JsonValue& json) {
  const int per_host =
      flags.training.per_host > 0 ? flags.training.per_host : cluster.devices_per_host;
  JsonValue rows = JsonValue::array();
  for (const std::int64_t devices : flags.devices)
    for (const std::int64_t bytes : flags.bytes) {
      const ClusterPart part{static_cast<int>(devices), per_host};
      const double seconds =
          all_reduce_seconds(cluster, part, static_cast<double>(bytes), flags.training.algorithm);
      char line[96];
      std::snprintf(line, sizeof line, "%8lld devices  %14lld bytes  %14.3f us\n",
                    static_cast<long long>(devices), static_cast<long long>(bytes), seconds * 1e6);
      text += line;
      rows.push(
          JsonValue::object().set("devices", devices).set("bytes", bytes).set("seconds", seconds));
    }
  json.set("machine", cluster.name).set("sums", std::move(rows));
}

// The training of this many devices. Buckets of a plan are those that its program makes.
SimulatedTraining training_on(int devices, const SimulationReport& report, bool has_buckets) {
  SimulatedTraining training = report.training;
  if (has_buckets || report.work.launches.empty() || devices == 1) return training;
  const int per_host = training.per_host > 0 ? training.per_host : report.cluster.devices_per_host;
  training.bucket_bytes =
      kMebi * bucket_mb_of_processes(default_bucket_mb(devices),
                                     report.work.parameters() * training.gradient_bytes, devices,
                                     devices == 2 && per_host == 1);
  return training;
}

SimulationReport simulate(const SimulateFlags& flags, ClusterDescription cluster) {
  const auto work_of = [&](const JsonValue& json) {
    return parse_workload(json, std::filesystem::path(flags.workload).stem().string());
  };
  SimulationReport report{read_description(flags.workload, work_of),
                          std::move(cluster),
                          flags.training,
                          flags.faults,
                          {}};
  TrainingWorkload& work = report.work;
  if (work.batch > 0 && flags.as_planned) report.training.batch = work.batch;
  if (!flags.times.empty()) {
    require<FlagError>(
        work.batch > 0 && report.training.batch == work.batch, "--trace=", flags.times,
        " has times of launches of a plan, for its own batch: ", flags.workload,
        work.batch > 0 ? cat(" plans ", work.batch, " samples") : std::string(" is no plan"));
    read_content(flags.times, kMostTraceBytes,
                 [&](std::string_view text) { take_traced_times(text, work); });
  }
  if (flags.measured)
    report.training.slowness =
        calibrated_slowness(report.work, report.cluster,
                            training_on(flags.measured->devices, report, flags.has_buckets),
                            flags.measured->devices, flags.measured->samples_per_second);
  for (const std::int64_t count : flags.devices) {
    const auto devices = static_cast<int>(count);
    report.steps.push_back(simulate_step(report.work, report.cluster,
                                         training_on(devices, report, flags.has_buckets), devices));
  }
  return report;
}

int run_simulate(const SimulateFlags& flags) {
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("--machine=", flags.machine), flags.machine);
  if (!flags.workload.empty())
    outputs.reserve_input(cat("WORKLOAD=", flags.workload), flags.workload);
  if (!flags.times.empty()) outputs.reserve_input(cat("--trace=", flags.times), flags.times);
  OutputFile* const json_file = outputs.open("--json", flags.json);
  OutputFile* const trace = outputs.open("--trace_file", flags.trace);
  std::optional<PlotFile> plot;
  if (!flags.plot.empty()) plot.emplace(outputs, "--plot", flags.plot);
  SimulateFlags used = flags;
  ClusterDescription cluster = read_description(flags.machine, parse_cluster);
  leave_out(used.without, cluster, used.training);
  std::string text;
  JsonValue json = JsonValue::object();
  if (flags.workload.empty()) {
    add_sums(used, cluster, text, json);
  } else {
    const SimulationReport report = simulate(used, std::move(cluster));
    const SimulatedStep& most = *std::ranges::max_element(
        report.steps, {}, [](const SimulatedStep& step) { return step.devices; });
    text = to_text(report);
    if (flags.explain) text += "\n" + explain(report, most);
    json = to_json(report);
    if (trace) trace->write(step_trace(most).str() + "\n");
    constexpr int kWidth = 800, kHeight = 500;
    if (plot) plot->draw(plot_commands(report), kWidth, kHeight);
  }
  std::fputs(text.c_str(), outputs.on_stdout() ? stderr : stdout);
  if (json_file) json_file->write(json.str(2) + "\n");
  outputs.finish();
  return 0;
}

}  // namespace

int run_simulate_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse_simulate, run_simulate)(arguments, program);
}

}  // namespace belfry
