// What is the most that these devices do? Times copies within the memory of each, and large
// products of matrices: the peaks that other benchmarks are read beside.
#include <cmath>
#include <cstdio>

#include "belfry/belfry.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/bench/timed_limit.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/statistics.h"
using namespace belfry;

namespace {

// As text, before they are checked.
struct RawFlags {
  FlagValue bytes = "256M", size, chain, precisions = "bf16,tf32,f32";
  FlagValue iterations, warmup, threads;
  std::string json;
  RawDevices devices{.list = "gpu:1"};
};

struct Flags {
  std::string help;  // what --help prints, if it was asked for
  DeviceFlags devices;
  std::int64_t bytes = 0, size = 8192;
  int chain = 10, iterations = 20, warmup = 2, threads = 0;
  std::vector<Precision> precisions;
  std::string json;
};

void define(FlagParser& parser, RawFlags& raw) {
  parser.group("What is measured");
  add_device_flags(parser, raw.devices);
  parser.add("-b,--bytes", raw.bytes, "BYTES", "copied within the memory of each device [256M]");
  parser.add("--size", raw.size, "N", "products are of N x N matrices, on each device [8192]");
  parser.add("--chain", raw.chain, "N", "products in a row that are timed as one [10]");
  parser.add("--precisions", raw.precisions, "LIST",
             cat("a comma list of how products are computed: ", join(precision_names(), "|"),
                 "; tf32: GPUs alone [bf16,tf32,f32; on CPUs bf16,f32]"));
  parser.group("How it is measured");
  parser.add("-n,--iters", raw.iterations, "N", "timed runs of each [20]");
  parser.add("-w,--warmup_iters", raw.warmup, "N", "runs before those [2]");
  parser.add("--threads", raw.threads, "N",
             "worker threads, the main thread included, at most 1024; 0: all usable cores [0]");
  parser.group("Output");
  parser.add("--json", raw.json, "FILE", "write the results there, as an object [none]");
}

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  RawFlags raw;
  FlagParser parser("Measures the peaks of devices. Flags may be spelled with - or _.", program);
  define(parser, raw);
  Flags flags;
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  flags.devices = read_devices(raw.devices, false);
  flags.bytes = parse_bytes(raw.bytes.str(), raw.bytes.text());
  require<FlagError>(flags.bytes > 0, raw.bytes, " leaves nothing to copy");
  read_integer(raw.size, 1, 32768, flags.size);
  read_integer(raw.chain, 1, 1000, flags.chain);
  read_integer(raw.iterations, 1, 1000000, flags.iterations);
  read_integer(raw.warmup, 0, 1000000, flags.warmup);
  read_integer(raw.threads, 0, 1024, flags.threads);
  for (const std::string_view name : split(raw.precisions.text(), ',')) {
    const Precision precision =
        as_flag(raw.precisions.name(), [&] { return find_precision(name); });
    const std::string refusal = precision_refusal(precision, flags.devices.devices);
    require<FlagError>(refusal.empty() || !raw.precisions.given(), raw.precisions, ": ", refusal);
    if (refusal.empty()) flags.precisions.push_back(precision);
  }
  flags.json = raw.json;
  return flags;
}

// Matrices of normal numbers, which GPUs do not multiply faster than others: each product keeps
// their size.
class Products {
 public:
  Products(const Flags& flags, Precision precision) {
    const Shape shape{flags.size, flags.size};
    const bool half = precision == Precision::kBf16 || precision == Precision::kF16;
    const DType dtype = !half                          ? DType::kF32
                        : precision == Precision::kF16 ? DType::kF16
                                                       : DType::kBF16;
    std::vector<Node*> last;
    for (const DeviceSpec& device : flags.devices.devices) {
      const DeviceScope on(graph_, device);
      const AutocastScope scope(graph_, autocasting(precision));
      const auto matrix = [&](const char* name, double deviation) {
        return cast(variable(graph_, cat(name, last.size()), shape,
                             {.initializer = init::normal(deviation), .trainable = false}),
                    dtype);
      };
      Output product = matrix("a", 1);
      const Output factor = matrix("b", 1 / std::sqrt(static_cast<double>(flags.size)));
      for (int i = 0; i < flags.chain; ++i) product = matmul(product, factor);
      last.push_back(&product.node());
    }
    session_ = std::make_unique<Session>(
        graph_, SessionOptions{.device_count = device_count(flags.devices.devices),
                               .logical_gpus = flags.devices.logical_gpus,
                               .threads = flags.threads,
                               .deterministic = flags.devices.deterministic});
    step_ = &session_->prepare({group(graph_, last)});
  }

  void run() { step_->run(); }

 private:
  Graph graph_;
  std::unique_ptr<Session> session_;
  Step* step_ = nullptr;
};

// Bytes read and written a second, by all devices together.
double copy_bandwidth(const Flags& flags, Console& console) {
  Interleaved ways;
  const std::vector<DeviceSpec>& devices = flags.devices.devices;
  const int most = flags.threads ? flags.threads : usable_cores();
  const TimedLimit limit(ways, {.devices = devices, .logical_gpus = flags.devices.logical_gpus},
                         flags.bytes, std::min(most, static_cast<int>(devices.size())));
  ways.on_call([&](std::int64_t made, std::int64_t all) {
    show_if_due(&console, "copy: run ", made, "/", all);
  });
  ways.run(flags.warmup, flags.iterations);
  return 2.0 * static_cast<double>(flags.bytes) * static_cast<double>(devices.size()) /
         limit.seconds();
}

// Multiplications and additions a second, by all devices together.
double product_rate(const Flags& flags, Precision precision, Console& console) {
  Products products(flags, precision);
  Interleaved ways;
  const int way = ways.add([&] { products.run(); });
  ways.on_call([&](std::int64_t made, std::int64_t all) {
    show_if_due(&console, name_of(precision), ": run ", made, "/", all);
  });
  ways.run(flags.warmup, flags.iterations);
  const auto n = static_cast<double>(flags.size);
  return 2 * n * n * n * flags.chain * static_cast<double>(flags.devices.devices.size()) /
         ways.seconds(way);
}

int run(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  OutputFile* const json = outputs.open("--json", flags.json);
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.devices.algorithms,
                            flags.devices.deterministic);
  Console console(outputs.on_stdout() ? stderr : stdout);
  const double bandwidth = copy_bandwidth(flags, console);
  Json report = Json::object();
  report.set("devices", static_cast<int>(flags.devices.devices.size()))
      .set("device_type", lower(flags.devices.devices[0].type.value_or("").str()))
      .set("bytes", flags.bytes)
      .set("copy_gbs", bandwidth / 1e9)
      .set("size", flags.size);
  console.line(cat("copy    ", padded(rounded(bandwidth / 1e9, 1), 10), " GB/s, read and written"));
  Json products = Json::object();
  for (const Precision precision : flags.precisions) {
    const double rate = product_rate(flags, precision, console);
    console.line(cat(padded(std::string(name_of(precision)), -7), " ",
                     padded(rounded(rate / 1e12, 3), 10), " TFLOP/s"));
    products.set(name_of(precision), rate / 1e12);
  }
  report.set("matmul_tflops", std::move(products));
  if (json) json->write(report.str(2) + "\n");
  algorithms.write();
  outputs.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
