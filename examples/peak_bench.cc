// Measures the peaks of devices: copies within the memory of each, and large products of matrices.
// Results of other benchmarks are compared with these.
#include <algorithm>
#include <cstdio>

#include "belfry/belfry.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/machine/product_peak.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/statistics.h"
#include "bench/byte_limit.h"
using namespace belfry;

namespace {

struct Flags {
  std::string help;  // the text of --help, if it was asked for
  std::vector<DeviceSpec> devices;
  SessionOptions session;
  std::string algorithms, json;
  std::int64_t bytes = 0, size = 0;
  int chain = 10, iterations = 20, warmup = 2;
  std::vector<Precision> precisions;

  bool on_gpus() const { return std::ranges::all_of(devices, &DeviceSpec::is_gpu); }
};

DeviceFlags device_flags(Flags& flags) {
  return {flags.devices, flags.session.logical_gpus, flags.session.deterministic, flags.algorithms};
}

void define(FlagParser& parser, Flags& flags) {
  parser.group("What is measured");
  add_device_flags(parser, device_flags(flags), "gpu:1");
  parser.add(
      "-b,--bytes",
      [&to = flags.bytes](const WrittenFlag& flag) {
        to = parse_bytes(flag.written, flag.value);
        require<FlagError>(to > 0, flag.written, " leaves nothing to copy");
      },
      "BYTES", "copied within the memory of each device [256M]", "256M");
  parser.add("--size", flags.size, 1, 32768, "N",
             "products are of N x N matrices, on each device [8192; on CPUs 1024]");
  parser.add("--chain", flags.chain, 1, 1000, "N", "products in a row that are timed as one [10]");
  parser.add(
      "--precisions",
      [&to = flags.precisions](const WrittenFlag& flag) {
        for (const std::string_view name : split(flag.value, ','))
          to.push_back(as_flag(flag.shown_name(), [&] { return find_precision(name); }));
      },
      "LIST",
      cat("a comma list of how products are computed: ", join(precision_names(), "|"),
          "; tf32: GPUs alone; bf16, f16: slow on CPUs [bf16,tf32,f32; on CPUs f32]"),
      "bf16,tf32,f32");
  parser.group("How it is measured");
  parser.add("-n,--iters", flags.iterations, 1, 1000000, "N", "timed runs of each [20]");
  parser.add("-w,--warmup_iters", flags.warmup, 0, 1000000, "N", "runs before those [2]");
  parser.add("--threads", flags.session.threads, 0, 1024, "N",
             "worker threads, the main thread included, at most 1024; 0: all usable cores [0]");
  parser.group("Output");
  parser.add("--json", flags.json, "FILE", "write the results there, as an object [none]");
}

ProductOptions products_of(const Flags& flags, Precision precision, bool dry_run = false) {
  ProductOptions options{.devices = flags.devices,
                         .session = flags.session,
                         .precision = precision,
                         .size = flags.size,
                         .chain = flags.chain};
  options.session.dry_run = dry_run;
  return options;
}

void choose_products(Flags& flags, const FlagParser& parser) {
  if (!parser.given("--size")) flags.size = default_product_size(flags.devices);
  if (!parser.given("--precisions") && !flags.on_gpus()) flags.precisions = {Precision::kF32};
  std::erase_if(flags.precisions, [&](Precision precision) {
    const std::string refusal = precision_refusal(precision, flags.devices);
    require<FlagError>(refusal.empty() || !parser.given("--precisions"),
                       parser.flag("--precisions").written, ": ", refusal);
    return !refusal.empty();
  });
}

// Checks memory before anything is measured. GPUs report a lack of memory themselves.
void require_memory(const Flags& flags, const FlagParser& parser) {
  const Busy busy("planning the products");
  const std::int64_t available = host_memory();
  const auto check = [&](const std::string& written, std::int64_t bytes) {
    const std::string refusal =
        memory_refusal(cat(written, " on ", parser.flag("--devices").written), bytes, available,
                       "use a smaller size or fewer --devices");
    require<FlagError>(refusal.empty(), refusal);
  };
  const std::string copied = parser.flag("--bytes").written;
  check(copied, flags.bytes);  // so that the product below does not overflow
  check(copied, flags.bytes * static_cast<std::int64_t>(flags.devices.size()));
  for (const Precision precision : flags.precisions)
    check(cat("--size=", flags.size), Products(products_of(flags, precision, true)).memory());
}

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  Flags flags;
  FlagParser parser("Measures the peaks of devices. Flags may be spelled with - or _.", program);
  define(parser, flags);
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  resolve_devices(parser, device_flags(flags), false);
  choose_products(flags, parser);
  flags.session.device_count = device_count(flags.devices);
  if (!flags.on_gpus()) require_memory(flags, parser);
  return flags;
}

// Calls `measure`. If memory is lacking, the error names `flag`.
template <class F>
double fitting(const std::string& flag, const F& measure) try {
  return measure();
} catch (const OutOfMemory& error) {
  throw OutOfMemory(cat(flag, ": ", error.what()));
}

// Times what the flags ask for, and keeps the results.
class Benchmark {
 public:
  Benchmark(const Flags& flags, std::FILE* stream) : flags_(flags), console_(stream) {}

  void run() {
    report_.set("devices", static_cast<int>(flags_.devices.size()))
        .set("device_type", lower(flags_.devices[0].type.value_or("").str()))
        .set("threads", workers())
        .set("bytes", flags_.bytes);
    const double bandwidth =
        fitting(cat("--bytes=", flags_.bytes), [&] { return copy_bandwidth(); });
    report_.set("copy_gbs", bandwidth / 1e9).set("size", flags_.size);
    console_.line(
        cat("copy    ", padded(rounded(bandwidth / 1e9, 1), 10), " GB/s, read and written"));
    for (const Precision precision : flags_.precisions) {
      const double rate =
          fitting(cat("--size=", flags_.size), [&] { return product_rate(precision); });
      console_.line(cat(padded(std::string(name_of(precision)), -7), " ",
                        padded(rounded(rate / 1e12, 3), 10), " TFLOP/s"));
      products_.set(name_of(precision), rate / 1e12);
    }
  }
  // The results of everything timed so far, also after run() threw; "" for none.
  std::string report() const {
    if (!report_.find("copy_gbs")) return "";
    JsonValue report = report_;
    return report.set("matmul_tflops", products_).str(2) + "\n";
  }

 private:
  int workers() const { return flags_.session.threads ? flags_.session.threads : usable_cores(); }

  // Bytes read and written per second, by all devices together.
  double copy_bandwidth() {
    std::optional<Busy> busy("allocating what is copied");
    Interleaved ways;
    const std::vector<DeviceSpec>& devices = flags_.devices;
    ByteLimit limit(devices, flags_.session.logical_gpus, flags_.bytes,
                    std::min(workers(), static_cast<int>(devices.size())));
    const int way = ways.add([&] { limit.run(); });
    busy.reset();
    time(ways, "copy");
    return 2.0 * static_cast<double>(flags_.bytes) * static_cast<double>(devices.size()) /
           ways.seconds(way);
  }

  // Multiplications and additions per second, by all devices together.
  double product_rate(Precision precision) {
    const std::string what = cat("computing products in ", name_of(precision));
    std::optional<Busy> busy(what);
    Products products(products_of(flags_, precision));
    const double start = seconds_now();
    products.run();
    const bool is_long = seconds_now() - start > 1;  // else a further thread would be timed
    busy.reset();
    Interleaved ways;
    const int way = ways.add([&] {
      std::optional<Busy> goes_on;
      if (is_long) goes_on.emplace(what);
      products.run();
    });
    time(ways, name_of(precision));
    return products.flops() / ways.seconds(way);
  }

  void time(Interleaved& ways, std::string_view what) {
    ways.on_call([&](std::int64_t made, std::int64_t all) {
      show_if_due(&console_, what, ": run ", made, "/", all);
    });
    ways.run(flags_.warmup, flags_.iterations);
  }

  const Flags& flags_;
  Console console_;
  JsonValue report_ = JsonValue::object(), products_ = JsonValue::object();
};

int run(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  OutputFile* const json = outputs.open("--json", flags.json);
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.algorithms,
                            flags.session.deterministic);
  Benchmark benchmark(flags, outputs.on_stdout() ? stderr : stdout);
  const auto write = [&] {
    if (const std::string report = benchmark.report(); json && !report.empty()) json->write(report);
  };
  try {
    benchmark.run();
  } catch (const std::exception&) {
    write();
    throw;
  }
  write();
  algorithms.write();
  outputs.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
