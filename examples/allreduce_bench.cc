// Which way of combining gradients is fastest here? Times strategies against each other, against
// the memory, and checks their sums. Flags and columns are those of nccl-tests' all_reduce_perf.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "belfry/allreduce/machine.h"
#include "belfry/belfry.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/bench/mode_bench.h"
#include "belfry/trainers/bench/models.h"
#include "belfry/trainers/bench/reduction_bench.h"
#include "belfry/trainers/bench/reduction_report.h"
#include "belfry/trainers/bench/update_bench.h"
#include "belfry/trainers/core/strategy_list.h"
#include "belfry/trainers/machine/algorithms_file.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/program/auto_flags.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/output_file.h"
using namespace belfry;

namespace {

// As text, before they are checked.
struct RawFlags {
  FlagValue least = "32M", most, factor, iterations, warmup, aggregate, check;
  FlagValue dtype = "f32", precision = "f32", redop = "sum", threads, model, update;
  std::string strategies = "collective", csv, json;
  RawDevices devices;
  AutoFlags automatic;
};

struct Flags {
  std::string help;  // what --help prints, if it was asked for
  ReductionBenchOptions bench;
  std::vector<std::string> strategies;
  std::int64_t least = 0, most = 0;  // bytes per device, whole elements
  std::string model;                 // its gradients instead of these
  int factor = 2;
  AutoFlags automatic;
  bool predicts = false;  // "auto" is among the strategies
  bool updates = false;
  std::string algorithms, csv, json;
};

void define(FlagParser& parser, RawFlags& raw) {
  parser.group("What is reduced");
  parser.add("-b,--minbytes", raw.least, "BYTES", "smallest size per device: 8, 1K, 128M [32M]");
  parser.add("-e,--maxbytes", raw.most, "BYTES", "largest size [32M, or -b if that is larger]");
  parser.add("-f,--stepfactor", raw.factor, "N", "each size is N times the one before [2]");
  parser.add("-d,--datatype", raw.dtype, "TYPE",
             "f32|f64|f16|bf16|i32; also float|double|half|bfloat16|int32 [f32]");
  parser.add("--precision", raw.precision, "f32",
             "as of programs that train: whatever models compute in there, gradients that are "
             "combined are f32; -d is for other types [f32]");
  parser.add("-o,--op", raw.redop, "OP", "sum|avg [sum]");
  add_device_flags(parser, raw.devices);
  parser.add(
      "--strategies", raw.strategies, "LIST",
      cat("a comma list of what --allreduce takes: ", join(strategy_names(), "|"),
          "; all: each of these; auto: the one that is predicted to be fastest [collective]"));
  parser.add(
      "--model", raw.model, "NAME",
      cat("the gradients of a model instead of one tensor: ", join(model_names(), "|"), " [none]"));
  parser.add("--update", raw.update, "NAME",
             "momentum: time the reduction with the update of replicated variables that follows "
             "it, updates fused or not, replicas shared or not [none]");
  parser.group("How it is measured");
  parser.add("-n,--iters", raw.iterations, "N", "timed runs of each strategy and size [20]");
  parser.add("-w,--warmup_iters", raw.warmup, "N", "runs before those [1]");
  parser.add("-m,--agg_iters", raw.aggregate, "N",
             "reductions that follow each other in each timed run; times are of one [1]");
  parser.add("-c,--check", raw.check, "0|1", "compare every sum with an oracle [1]");
  parser.add("--threads", raw.threads, "N",
             "worker threads, the main thread included, at most 1024; 0: all usable cores [0]");
  add_auto_flags(parser, raw.automatic);
  parser.group("Output");
  parser.add("--csv", raw.csv, "FILE", "write the results there, a line each [none]");
  parser.add("--json", raw.json, "FILE", "write the results there, as a list of objects [none]");
  parser.add_spellings(device_spellings());
  const std::string why = "name strategies by --strategies, such as --strategies=ring,collective";
  parser.add_spellings({refused("allreduce", why), refused("all_reduce_spec", why),
                        only("hierarchical_copy", "", "false", "write --strategies=hierarchical")});
}

DType parse_type(const FlagValue& flag) {
  const std::pair<const char*, DType> types[] = {
      {"f32", DType::kF32},   {"f64", DType::kF64},    {"f16", DType::kF16},
      {"bf16", DType::kBF16}, {"i32", DType::kI32},    {"float", DType::kF32},
      {"half", DType::kF16},  {"double", DType::kF64}, {"bfloat16", DType::kBF16},
      {"int32", DType::kI32}};
  std::vector<std::string> names;
  for (const auto& [name, dtype] : types) {
    if (flag.text() == name) return dtype;
    names.emplace_back(name);
  }
  throw FlagError(
      cat(flag, " is no type", did_you_mean(flag.text(), names), " (types: ", join(names), ")"));
}

// Whole elements, and no more than memory holds.
std::int64_t parse_size(const FlagValue& flag, DType dtype) {
  const std::int64_t bytes = parse_bytes(flag.str(), flag.text());
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  require<FlagError>(bytes > 0, flag, " leaves nothing to reduce and to time");
  require<FlagError>(bytes >= element, flag, " is less than one ", name_of(dtype), " of ", element,
                     " bytes");
  const std::string refusal =
      memory_refusal(flag.str(), bytes, host_memory(), "use a smaller size");
  require<FlagError>(refusal.empty(), refusal);
  return bytes / element * element;
}

void read_strategies(Flags& flags, const RawFlags& raw) {
  StrategyList list = parse_strategies(raw.strategies);
  flags.strategies = std::move(list.names);
  // One device, too, so that a sweep over numbers of devices may begin with it.
  flags.bench.list_refused = list.all || flags.bench.devices.size() == 1;
  flags.predicts = list.automatic;
  check_auto_flags(raw.automatic, flags.predicts, "auto among --strategies");
  require<FlagError>(!flags.updates || !flags.predicts,
                     "--update times strategies by their names; leave auto out");
  flags.bench.auto_any = raw.automatic.auto_any;
  flags.automatic = raw.automatic;
}

// What is reduced, one table row each: the tensors of one device.
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

// Before anything is allocated.
void refuse_unfit(const Flags& flags) {
  if (flags.bench.list_refused) return;
  for (const std::string& strategy : flags.strategies)
    for (const std::vector<Shape>& shapes : subjects(flags)) {
      if (strategy == "auto") continue;
      const std::string why = reduction_refusal(shapes, strategy, flags.bench);
      require<FlagError>(why.empty(), "--strategies=", strategy, ": ", why);
    }
}

// All sessions and buffers of the largest size, before the first is measured.
void require_memory(const Flags& flags, const RawFlags& raw) {
  const std::vector<Shape> largest = subjects(flags).back();
  std::int64_t bytes = 0;
  if (flags.updates)
    for (const std::string& strategy : flags.strategies) {
      if (reduction_refusal(largest, strategy, flags.bench).empty())
        bytes = std::max(bytes, update_memory(largest, strategy, flags.bench));
    }
  else
    bytes = reduction_memory(largest, flags.strategies, flags.bench);
  const FlagValue& what = raw.model.given() ? raw.model : raw.most.given() ? raw.most : raw.least;
  const std::string refusal =
      memory_refusal(cat(what, " on ", raw.devices.list), bytes, host_memory(),
                     "use a smaller size or fewer --devices or --strategies");
  require<FlagError>(refusal.empty(), refusal);
}

void read_sizes(Flags& flags, const RawFlags& raw) {
  if (raw.model.given())
    as_flag(raw.model.str(), [&] { return find_model(raw.model.text()).classes; });
  for (const FlagValue* size : {&raw.least, &raw.most, &raw.factor})
    require<FlagError>(!raw.model.given() || !size->given(), *size, " has no use beside ",
                       raw.model, ", whose gradients have sizes of their own");
  flags.model = raw.model.text();
  flags.least = parse_size(raw.least, flags.bench.dtype);
  flags.most = raw.most.given()
                   ? parse_size(raw.most, flags.bench.dtype)
                   : std::max(flags.least, parse_size(RawFlags().least, flags.bench.dtype));
  require<FlagError>(flags.least <= flags.most, raw.least,
                     raw.least.given() ? "" : ", the default,", " is more than ", raw.most);
  read_integer(raw.factor, 2, std::numeric_limits<int>::max(), flags.factor);
}

void read_types(Flags& flags, const RawFlags& raw) {
  ReductionBenchOptions& bench = flags.bench;
  bench.dtype = parse_type(raw.dtype);
  const Precision precision =
      as_flag(raw.precision.str(), [&] { return find_precision(raw.precision.text()); });
  require<FlagError>(precision == Precision::kF32, raw.precision,
                     " changes no gradient: those of f32 variables are f32; to sum another type "
                     "say e.g. -d bf16");
  const std::string& redop = raw.redop.text();
  require<FlagError>(redop == "sum" || redop == "avg", raw.redop, " is neither sum nor avg");
  bench.reduction = redop == "avg" ? Reduction::kMean : Reduction::kSum;
  require<FlagError>(is_floating(bench.dtype) || redop == "sum", raw.redop, " of ", raw.dtype,
                     ": the mean of integers is not defined");
  require<FlagError>(!raw.update.given() || raw.update.text() == "momentum", raw.update,
                     " is unknown; say momentum");
  flags.updates = raw.update.given();
  require<FlagError>(!flags.updates || bench.dtype == DType::kF32 || bench.dtype == DType::kF64,
                     raw.update, " takes -d f32 or f64, not ", raw.dtype.text());
}

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  RawFlags raw;
  FlagParser parser("Times ways to combine gradients. Flags may be spelled with - or _.", program);
  define(parser, raw);
  Flags flags;
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  constexpr int kMost = std::numeric_limits<int>::max();
  ReductionBenchOptions& bench = flags.bench;
  read_types(flags, raw);
  read_sizes(flags, raw);
  read_integer(raw.iterations, 1, kMost, bench.iterations);
  read_integer(raw.warmup, 0, kMost, bench.warmup);
  read_integer(raw.aggregate, 1, 1000, bench.aggregate);
  require<FlagError>(!flags.updates || bench.aggregate == 1, raw.aggregate,
                     " has no use beside --update, which times one step of training at a time");
  read_switch(raw.check, bench.check);
  DeviceFlags devices = read_devices(raw.devices, false);
  bench.devices = std::move(devices.devices);
  bench.logical_gpus = devices.logical_gpus;
  bench.deterministic = devices.deterministic;
  flags.algorithms = std::move(devices.algorithms);
  read_integer(raw.threads, 0, 1024, bench.threads);
  read_strategies(flags, raw);
  refuse_unfit(flags);
  require_memory(flags, raw);
  flags.csv = raw.csv;
  flags.json = raw.json;
  return flags;
}

std::string header(const Flags& flags) {
  const ReductionBenchOptions& bench = flags.bench;
  return cat(flags.model.empty() ? "" : cat("# gradients of ", flags.model, "\n"),
             "# devices: ", short_names(bench.devices),
             "; threads: ", bench.threads ? bench.threads : usable_cores(),
             "; warmup iters: ", bench.warmup, " iters: ", bench.iterations,
             " agg iters: ", bench.aggregate, " validation: ", bench.check ? 1 : 0, "\n");
}

// Times what the flags ask for, and keeps what was measured.
class Benchmark {
 public:
  // Prints the tables there.
  Benchmark(const Flags& flags, std::FILE* stream)
      : flags_(flags), bench_(flags.bench), console_(stream) {
    bench_.console = &console_;
  }

  // Returns how many elements were wrong.
  std::int64_t run() { return flags_.updates ? time_updates() : time_reductions(); }
  // The records of all that was timed so far, also after run() threw.
  const Json& records() const { return records_; }

 private:
  void print(const std::string& text) {
    if (!text.empty()) console_.line(without_line_break(text));
  }

  std::int64_t time_reductions() {
    if (flags_.predicts) {
      machine_ =
          machine_for(flags_.automatic, {bench_.devices, bench_.threads, bench_.logical_gpus});
      bench_.machine = &*machine_;
    }
    ReductionTable table(bench_);
    print(header(flags_) + table.head());
    for (const std::vector<Shape>& shapes : subjects(flags_)) {
      const ReductionBench result = bench_reduction(shapes, flags_.strategies, bench_);
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
      for (const std::string& strategy : flags_.strategies) {
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
  std::optional<Machine> machine_;
  Console console_;
  Json records_ = Json::array();
};

int run(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("--links=", flags.automatic.links), flags.automatic.links);
  OutputFile* const csv = outputs.open("--csv", flags.csv);
  OutputFile* const json = outputs.open("--json", flags.json);
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.algorithms,
                            flags.bench.deterministic);
  // Whoever asked for a file on stdout gets nothing else there.
  Benchmark benchmark(flags, outputs.on_stdout() ? stderr : stdout);
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

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
