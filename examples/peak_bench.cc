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

struct Flags {
  std::string help;  // what --help prints, if it was asked for
  std::vector<DeviceSpec> devices;
  SessionOptions session;
  std::string algorithms, json;
  std::int64_t bytes = 0, size = 8192;
  int chain = 10, iterations = 20, warmup = 2;
  std::vector<Precision> precisions;
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
             "products are of N x N matrices, on each device [8192]");
  parser.add("--chain", flags.chain, 1, 1000, "N", "products in a row that are timed as one [10]");
  parser.add(
      "--precisions",
      [&to = flags.precisions](const WrittenFlag& flag) {
        for (const std::string_view name : split(flag.value, ','))
          to.push_back(as_flag(flag.shown_name(), [&] { return find_precision(name); }));
      },
      "LIST",
      cat("a comma list of how products are computed: ", join(precision_names(), "|"),
          "; tf32: GPUs alone [bf16,tf32,f32; on CPUs bf16,f32]"),
      "bf16,tf32,f32");
  parser.group("How it is measured");
  parser.add("-n,--iters", flags.iterations, 1, 1000000, "N", "timed runs of each [20]");
  parser.add("-w,--warmup_iters", flags.warmup, 0, 1000000, "N", "runs before those [2]");
  parser.add("--threads", flags.session.threads, 0, 1024, "N",
             "worker threads, the main thread included, at most 1024; 0: all usable cores [0]");
  parser.group("Output");
  parser.add("--json", flags.json, "FILE", "write the results there, as an object [none]");
}

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  Flags flags;
  FlagParser parser("Measures the peaks of devices. Flags may be spelled with - or _.", program);
  define(parser, flags);
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
  check_devices(parser, device_flags(flags), false);
  std::erase_if(flags.precisions, [&](Precision precision) {
    const std::string refusal = precision_refusal(precision, flags.devices);
    require<FlagError>(refusal.empty() || !parser.given("--precisions"),
                       parser.flag("--precisions").written, ": ", refusal);
    return !refusal.empty();
  });
  flags.session.device_count = device_count(flags.devices);
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
    for (const DeviceSpec& device : flags.devices) {
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
    session_ = std::make_unique<Session>(graph_, flags.session);
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
  const std::vector<DeviceSpec>& devices = flags.devices;
  const int most = flags.session.threads ? flags.session.threads : usable_cores();
  const TimedLimit limit(ways, {.devices = devices, .logical_gpus = flags.session.logical_gpus},
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
  return 2 * n * n * n * flags.chain * static_cast<double>(flags.devices.size()) /
         ways.seconds(way);
}

int run(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  OutputFile* const json = outputs.open("--json", flags.json);
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.algorithms,
                            flags.session.deterministic);
  Console console(outputs.on_stdout() ? stderr : stdout);
  const double bandwidth = copy_bandwidth(flags, console);
  Json report = Json::object();
  report.set("devices", static_cast<int>(flags.devices.size()))
      .set("device_type", lower(flags.devices[0].type.value_or("").str()))
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
