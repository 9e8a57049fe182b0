// Which way of combining gradients is fastest here? Compares the times of strategies with each
// other and with the bandwidth of memory, and checks their sums. Flags and columns are those of
// nccl-tests' all_reduce_perf.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/belfry.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/framework/group/launcher.h"
#include "belfry/trainers/flags/auto_flags.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/tf_spellings.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/output_file.h"
#include "bench/mode_bench.h"
#include "bench/reduction_bench.h"
#include "bench/reduction_report.h"
#include "bench/strategy_list.h"
#include "bench/update_bench.h"
using namespace belfry;

namespace {

struct Flags {
  std::string help;  // the text of --help, if it was asked for
  LauncherFound launcher;
  ReductionBenchOptions bench;
  StrategyList strategies;
  std::int64_t least = 0, most = 0;  // bytes per device, whole elements
  std::string model;                 // reduce the gradients of this model instead of these sizes
  int factor = 2;
  std::string links;
  bool updates = false;
  std::string algorithms, csv, json;
};

DeviceFlags device_flags(Flags& flags) {
  ReductionBenchOptions& bench = flags.bench;
  return {bench.devices, bench.logical_gpus, bench.deterministic, flags.algorithms};
}

DType parse_type(const WrittenFlag& flag) {
  const std::pair<const char*, DType> types[] = {
      {"f32", DType::kF32},   {"f64", DType::kF64},    {"f16", DType::kF16},
      {"bf16", DType::kBF16}, {"i32", DType::kI32},    {"float", DType::kF32},
      {"half", DType::kF16},  {"double", DType::kF64}, {"bfloat16", DType::kBF16},
      {"int32", DType::kI32}};
  std::vector<std::string> names;
  for (const auto& [name, dtype] : types) {
    if (flag.value == name) return dtype;
    names.emplace_back(name);
  }
  throw FlagError(cat(flag.written, " is no type", did_you_mean(flag.value, names),
                      " (types: ", join(names), ")"));
}

// Reads a number of whole elements that memory can hold.
std::int64_t parse_size(const WrittenFlag& flag, DType dtype) {
  const std::int64_t bytes = parse_bytes(flag.written, flag.value);
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  require<FlagError>(bytes > 0, flag.written, " leaves nothing to reduce and to time");
  require<FlagError>(bytes >= element, flag.written, " is less than one ", name_of(dtype), " of ",
                     element, " bytes");
  const std::string refusal =
      memory_refusal(flag.written, bytes, host_memory(), "use a smaller size");
  require<FlagError>(refusal.empty(), refusal);
  return bytes / element * element;
}

void require_f32(const WrittenFlag& flag) {
  const Precision precision = as_flag(flag.written, [&] { return find_precision(flag.value); });
  require<FlagError>(precision == Precision::kF32, flag.written,
                     " changes no gradient: those of f32 variables are f32; to sum another type "
                     "say e.g. -d bf16");
}

Reduction parse_reduction(const WrittenFlag& flag) {
  require<FlagError>(flag.value == "sum" || flag.value == "avg", flag.written,
                     " is neither sum nor avg");
  return flag.value == "avg" ? Reduction::kMean : Reduction::kSum;
}

std::string parse_model(std::string_view name) {
  find_model(name);
  return std::string(name);
}

bool parse_update(const WrittenFlag& flag) {
  require<FlagError>(flag.value == "momentum", flag.written, " is unknown; say momentum");
  return true;
}

constexpr int kMostRuns = std::numeric_limits<int>::max();

void add_subjects(FlagParser& parser, ReductionBenchOptions& bench, int& factor) {
  const auto later = [](const WrittenFlag&) {};  // read later, as it depends on --datatype
  parser.group("What is reduced");
  parser.add("-b,--minbytes", later, "BYTES", "smallest size per device: 8, 1K, 128M [32M]", "32M");
  parser.add("-e,--maxbytes", later, "BYTES", "largest size [32M, or -b if that is larger]", "32M");
  parser.add("-f,--stepfactor", factor, 2, kMostRuns, "N",
             "each size is N times the one before [2]");
  parser.add_parsed("-d,--datatype", bench.dtype, parse_type, "TYPE",
                    "f32|f64|f16|bf16|i32; also float|double|half|bfloat16|int32 [f32]", "f32");
  parser.add("--precision", require_f32, "f32",
             "as of programs that train: whatever models compute in there, gradients that are "
             "combined are f32; -d is for other types [f32]");
  parser.add_parsed("-o,--op", bench.reduction, parse_reduction, "OP", "sum|avg [sum]", "sum");
}

void add_ways(FlagParser& parser, Flags& flags) {
  parser.add_parsed(
      "--strategies", flags.strategies,
      [](const WrittenFlag& flag) { return parse_strategies(flag.value); }, "LIST",
      cat("a comma list of what --allreduce takes: ", join(strategy_names(), "|"),
          "; all: each of these; auto: the one that is predicted to be fastest [collective]"),
      "collective");
  parser.add_parsed(
      "--model", flags.model, parse_model, "NAME",
      cat("the gradients of a model instead of one tensor: ", join(model_names(), "|"), " [none]"));
  parser.add_parsed(
      "--update", flags.updates, parse_update, "NAME",
      "momentum: time the reduction with the update of replicated variables that follows "
      "it, updates fused or not, replicas shared or not [none]");
}

void add_measurement(FlagParser& parser, ReductionBenchOptions& bench) {
  parser.group("How it is measured");
  parser.add("-n,--iters", bench.iterations, 1, kMostRuns, "N",
             "timed runs of each strategy and size [20]");
  parser.add("-w,--warmup_iters", bench.warmup, 0, kMostRuns, "N", "runs before those [1]");
  parser.add("-m,--agg_iters", bench.aggregate, 1, 1000, "N",
             "reductions that follow each other in each timed run; times are of one [1]");
  parser.add("-c,--check", bench.check, "0|1", "compare every sum with an oracle [1]");
  parser.add("--threads", bench.threads, 0, 1024, "N",
             "worker threads, the main thread included, at most 1024; 0: all usable cores [0]");
}

void define(FlagParser& parser, Flags& flags) {
  add_subjects(parser, flags.bench, flags.factor);
  add_device_flags(parser, device_flags(flags), "cpu:2");
  add_ways(parser, flags);
  add_measurement(parser, flags.bench);
  add_auto_flags(parser, flags.links, flags.bench.auto_any);
  parser.group("Output");
  parser.add("--csv", flags.csv, "FILE", "write the results there, a line each [none]");
  parser.add("--json", flags.json, "FILE", "write the results there, as a list of objects [none]");
  parser.add_spellings(device_spellings());
  const std::string why = "name strategies by --strategies, such as --strategies=ring,collective";
  parser.add_spellings({refused("allreduce", why), refused("all_reduce_spec", why),
                        only("hierarchical_copy", "", "false", "write --strategies=hierarchical")});
  parser.add_spellings(tf_refusals("nothing is trained here; leave it out, or run train_bench"));
}

void check_strategies(Flags& flags) {
  const StrategyList& list = flags.strategies;
  // With one device nothing is an error, so a sweep over numbers of devices may begin with it.
  flags.bench.list_refused = list.all || flags.bench.towers() == 1;
  check_auto_flags(flags.links, flags.bench.auto_any, list.automatic, "auto among --strategies");
  require<FlagError>(!list.automatic || flags.updates || !flags.links.empty(), "--strategies=auto",
                     kChoosesByLinks);
  require<FlagError>(!flags.updates || !list.automatic,
                     "--update times strategies by their names; leave auto out");
}

// Throws FlagError for flags that several processes do not support.
void check_processes(const Flags& flags, const FlagParser& parser) {
  const std::string& evidence = flags.launcher.evidence;
  const auto refuse = [&](const std::string& flag, const char* why) {
    throw FlagError(cat(flag, " ", why, ", and this is one of several (", evidence, ")"));
  };
  if (flags.updates) refuse(parser.flag("--update").written, "times the update of one process");
  if (flags.strategies.automatic)
    refuse("auto among --strategies", "predicts for the devices of one process");
  if (any_gpu(flags.bench.devices))
    refuse(parser.flag("--devices").written, "names GPUs, which one process alone can use yet");
}

// The tensors that each device reduces: an element per row of the table.
std::vector<std::vector<Shape>> subjects(const Flags& flags) {
  std::vector<std::vector<Shape>> all;
  if (!flags.model.empty()) {
    all.emplace_back();
    for (const TensorType& type : trainable_types(find_model(flags.model)))
      all.back().push_back(type.shape);
    return all;
  }
  const auto element = static_cast<std::int64_t>(size_of(flags.bench.dtype));
  for (std::int64_t bytes = flags.least; bytes <= flags.most; bytes *= flags.factor) {
    all.push_back({Shape{bytes / element}});
    if (bytes > flags.most / flags.factor) break;
  }
  return all;
}

// Refuses strategies before anything is allocated.
void refuse_unfit(const Flags& flags) {
  if (flags.bench.list_refused) return;
  for (const std::string& strategy : flags.strategies.names)
    for (const std::vector<Shape>& shapes : subjects(flags)) {
      if (strategy == "auto") continue;
      const std::string why = reduction_refusal(shapes, strategy, flags.bench);
      require<FlagError>(why.empty(), "--strategies=", strategy, ": ", why);
    }
}

// Requires memory for all sessions and buffers of the largest size, before anything is measured.
void require_memory(const Flags& flags, const FlagParser& parser) {
  const std::vector<Shape> largest = subjects(flags).back();
  std::int64_t bytes = 0;
  if (flags.updates)
    for (const std::string& strategy : flags.strategies.names) {
      if (reduction_refusal(largest, strategy, flags.bench).empty())
        bytes = std::max(bytes, update_memory(largest, strategy, flags.bench));
    }
  else
    bytes = reduction_memory(largest, flags.strategies.names, flags.bench);
  const char* const what = parser.given("--model")      ? "--model"
                           : parser.given("--maxbytes") ? "--maxbytes"
                                                        : "--minbytes";
  const std::string refusal =
      memory_refusal(cat(parser.flag(what).written, " on ", parser.flag("--devices").written),
                     bytes, host_memory(), "use a smaller size or fewer --devices or --strategies");
  require<FlagError>(refusal.empty(), refusal);
}

void read_sizes(Flags& flags, const FlagParser& parser) {
  const WrittenFlag least = parser.flag("--minbytes"), most = parser.flag("--maxbytes");
  for (const char* size : {"--minbytes", "--maxbytes", "--stepfactor"})
    require<FlagError>(!parser.given("--model") || !parser.given(size), parser.flag(size).written,
                       " has no use beside ", parser.flag("--model").written,
                       ", whose gradients have sizes of their own");
  flags.least = parse_size(least, flags.bench.dtype);
  flags.most = parse_size(most, flags.bench.dtype);
  if (!parser.given("--maxbytes")) flags.most = std::max(flags.least, flags.most);
  require<FlagError>(flags.least <= flags.most, least.written,
                     parser.given("--minbytes") ? "" : ", the default,", " is more than ",
                     most.written);
}

void check_types(const Flags& flags, const FlagParser& parser) {
  const ReductionBenchOptions& bench = flags.bench;
  const WrittenFlag type = parser.flag("--datatype");
  require<FlagError>(is_floating(bench.dtype) || bench.reduction == Reduction::kSum,
                     parser.flag("--op").written, " of ", type.written,
                     ": the mean of integers is not defined");
  require<FlagError>(!flags.updates || bench.dtype == DType::kF32 || bench.dtype == DType::kF64,
                     parser.flag("--update").written, " takes -d f32 or f64, not ", type.value);
}

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  Flags flags;
  FlagParser parser("Times ways to combine gradients. Flags may be spelled with - or _.", program);
  define(parser, flags);
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  flags.launcher = find_launcher(environment_variable);
  flags.bench.place.size = flags.launcher.size;
  check_types(flags, parser);
  read_sizes(flags, parser);
  require<FlagError>(!flags.updates || flags.bench.aggregate == 1,
                     parser.flag("--agg_iters").written,
                     " has no use beside --update, which times one step of training at a time");
  resolve_devices(parser, device_flags(flags), false);
  check_strategies(flags);
  if (flags.launcher.size > 1) check_processes(flags, parser);
  const Busy busy("planning the strategies");
  refuse_unfit(flags);
  require_memory(flags, parser);
  return flags;
}

std::string hosts_text(const Processes* processes) {
  if (!processes) return "";
  std::string text = cat("# ", processes->size(), " processes by ", processes->transport(), ":");
  for (int r = 0; r < processes->size(); ++r)
    text += cat(r == 0 ? " " : ", ", "rank ", r, " on ", processes->host(r));
  return text + "; times are those of the slowest\n";
}

std::string header(const Flags& flags) {
  const ReductionBenchOptions& bench = flags.bench;
  return cat(hosts_text(bench.processes.get()),
             flags.model.empty() ? "" : cat("# gradients of ", flags.model, "\n"),
             "# devices: ", short_names(bench.devices), bench.processes ? " of each" : "",
             "; threads: ", bench.threads ? bench.threads : usable_cores(),
             "; warmup iters: ", bench.warmup, " iters: ", bench.iterations,
             " agg iters: ", bench.aggregate, " validation: ", bench.check ? 1 : 0, "\n");
}

// Times what the flags ask for, and keeps the results.
class Benchmark {
 public:
  // Prints tables to `stream`.
  Benchmark(const Flags& flags, std::FILE* stream)
      : flags_(flags), bench_(flags.bench), console_(stream) {
    bench_.console = &console_;
  }

  // Returns the number of wrong elements.
  std::int64_t run() { return flags_.updates ? time_updates() : time_reductions(); }
  // The records of everything timed so far, also after run() threw.
  const JsonValue& records() const { return records_; }

 private:
  void print(const std::string& text) {
    if (!text.empty()) console_.line(without_line_break(text));
  }

  std::int64_t time_reductions() {
    if (flags_.strategies.automatic) {
      machine_ = machine_for(flags_.links, bench_.devices, bench_.logical_gpus);
      bench_.machine = machine_.get();
    }
    ReductionTable table(bench_);
    print(header(flags_) + table.head());
    for (const std::vector<Shape>& shapes : subjects(flags_)) {
      const ReductionBench result = bench_reduction(shapes, flags_.strategies.names, bench_);
      print(table.lines(result));
      append_json(result, bench_, records_);
    }
    print(table.summary());
    return table.wrong();
  }

  std::int64_t time_updates() {
    std::int64_t wrong = 0;
    print(header(flags_) + update_head());
    for (const std::vector<Shape>& shapes : subjects(flags_))
      for (const std::string& strategy : flags_.strategies.names) {
        if (const std::string why = reduction_refusal(shapes, strategy, flags_.bench);
            !why.empty()) {
          print(cat("# ", strategy, " refused: ", why, "\n"));
          continue;
        }
        const UpdateBench result = bench_update(shapes, strategy, bench_);
        print(update_lines(result, strategy, flags_.bench));
        append_json(result, strategy, flags_.bench, records_);
        for (const UpdateCell& cell : result.cells) wrong += cell.wrong.value_or(0);
      }
    return wrong;
  }

  const Flags& flags_;
  ReductionBenchOptions bench_;
  std::shared_ptr<const MachineDescription> machine_;
  Console console_;
  JsonValue records_ = JsonValue::array();
};

int measure(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("--links=", flags.links), flags.links);
  OutputFile* const csv = outputs.open("--csv", flags.csv);
  OutputFile* const json = outputs.open("--json", flags.json);
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.algorithms,
                            flags.bench.deterministic);
  // If a file goes to stdout, nothing else is printed there.
  const bool speaks = flags.bench.place.rank == 0;
  Benchmark benchmark(flags, !speaks ? nullptr : outputs.on_stdout() ? stderr : stdout);
  const auto write = [&] {
    if (csv) csv->write(to_csv(benchmark.records()));
    if (json) json->write(benchmark.records().str(2) + "\n");
  };
  std::int64_t wrong = 0;
  try {
    wrong = benchmark.run();
  } catch (const std::exception&) {
    if (!benchmark.records().items().empty()) write();
    throw;
  }
  write();
  algorithms.write();
  outputs.finish();
  return wrong == 0 ? 0 : 1;
}

// The settings in which processes must agree: sizes, types and strategies decide which messages are
// sent.
std::vector<AgreedItem> agreed_items(const Flags& flags) {
  const ReductionBenchOptions& bench = flags.bench;
  return {{"--devices", short_names(bench.devices)},
          {"--strategies", join(flags.strategies.names)},
          {"--model", flags.model},
          {"--minbytes", cat(flags.least)},
          {"--maxbytes", cat(flags.most)},
          {"--stepfactor", cat(flags.factor)},
          {"--datatype", std::string(name_of(bench.dtype))},
          {"--op", bench.reduction == Reduction::kSum ? "sum" : "avg"},
          {"--iters", cat(bench.iterations)},
          {"--warmup_iters", cat(bench.warmup)},
          {"--agg_iters", cat(bench.aggregate)},
          {"--check", cat(bench.check)}};
}

// Runs as one of several processes, or alone. Rank 0 prints and writes.
int run(const Flags& flags) {
  const std::shared_ptr<Processes> processes = join_processes(flags.launcher);
  return run_process(processes.get(), [&] {
    if (!processes) return measure(flags);
    require_agreement(*processes, agreed_items(flags));
    Flags own = flags;
    own.bench.processes = processes;
    own.bench.place = processes->place();
    if (own.bench.threads == 0) own.bench.threads = share_of_cores(*processes);
    if (processes->rank() > 0) {
      own.csv.clear();
      own.json.clear();
    }
    return measure(own);
  });
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
