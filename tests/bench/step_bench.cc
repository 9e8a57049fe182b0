// Times whole training steps on logical CPU devices, and the cost of a launch; see
// docs/benchmarks.md.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/belfry.h"
#include "belfry/examples/bench/byte_limit.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/tests/bench/step_options.h"
#include "belfry/trainers/machine/product_peak.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry::bench {
namespace {

constexpr int kChainLength = 1000;

// A model to train, and how many of its steps take about half a second.
struct Work {
  std::string name, title;
  ModelFunction model;
  Shape sample;
  Optimizer optimizer;
  std::vector<int> devices;
  int steps;
};

std::vector<Work> works() {
  const ModelFunction mlp = [](Tower& tower, Output image, Output label) {
    return models::mlp(tower, image, label);
  };
  const ModelFunction convnet = [](Tower& tower, Output image, Output label) {
    return models::mnist(tower, image, label);
  };
  return {{"mlp", "MLP 784-512-512-10, momentum", mlp, {784}, momentum(0.01), {1, 2, 8}, 100},
          {"convnet", "MNIST convnet, Adam", convnet, {28, 28, 1}, adam(1e-3), {1, 2, 4, 8}, 10}};
}

// A prepared step and its timings.
struct Case {
  std::string model;
  int devices = 1;
  int steps = 0;  // per round
  Graph graph;
  TrainingGraph built;
  std::unique_ptr<Session> session;
  CompiledStep* step = nullptr;
  std::vector<Tensor> feeds;
  std::vector<double> ms = {};
  double wall = 0, cpu = 0;  // seconds of the timed steps; `cpu`: of the whole process

  double median_ms() const { return median(ms); }
  double min_ms() const { return *std::ranges::min_element(ms); }
  double examples_per_second() const { return kGlobalBatch / median_ms() * 1e3; }
  double cpu_over_wall() const { return cpu / wall; }
};

Tensor synthetic(const Output& input, std::mt19937& random) {
  Tensor values(input.shape(), input.dtype());
  if (input.dtype() == DType::kI32) {
    for (std::int32_t& label : values.mutable_data<std::int32_t>())
      label = static_cast<std::int32_t>(random() % 10);
  } else {
    for (float& value : values.mutable_data<float>())
      value = static_cast<float>(random() % 256) / 255;
  }
  return values;
}

std::unique_ptr<Session> make_session(const Graph& graph, int devices, int threads,
                                      int shards_per_device = 1, bool all_workers = false) {
  return std::make_unique<Session>(graph, SessionOptions{.device_count = {{"CPU", devices}},
                                                         .shards_per_device = shards_per_device,
                                                         .threads = threads,
                                                         .all_workers = all_workers});
}

std::unique_ptr<Case> training_case(const Work& work, int devices, const StepOptions& options) {
  auto made = std::make_unique<Case>();
  made->model = work.name;
  made->devices = devices;
  made->steps = options.steps > 0 ? options.steps : work.steps;
  std::vector<DeviceSpec> specs;
  for (int k = 0; k < devices; ++k) specs.push_back(DeviceSpec::local("CPU", k));
  const std::vector<Dataset::Field> fields{{"image", DType::kF32, work.sample},
                                           {"label", DType::kI32, {}}};
  const bool shared = options.allreduce == "colocate";
  const BatchPlan batches(kGlobalBatch, devices, kGlobalBatch / devices, 1);
  const TrainerOptions trainer{
      .model = work.model, .optimizer = work.optimizer, .devices = std::move(specs)};
  const TrainerKind kind{
      .variables = shared ? VariablePolicy::kSpread : VariablePolicy::kReplicated,
      .combine = [&](const TrainerOptions&, const GradientTable& gradients, ReduceOptions how) {
        how.packing.bucket_mb = options.bucket_mb;
        return make_strategy(options.allreduce)->reduce(gradients, how);
      }};
  made->built = build_training_graph(
      made->graph, {.kind = kind, .trainer = trainer, .fields = fields, .forms = batches.forms()});
  std::vector<Fetch> fetches{*made->built.losses[0].steps[0].train_op};
  std::vector<FeedType> feeds;
  std::mt19937 random(1);
  for (const TowerRecord& tower : made->built.towers) {
    fetches.emplace_back(tower.loss);
    for (const Output& input : tower.inputs) {
      feeds.push_back({input, input.shape()});
      made->feeds.push_back(synthetic(input, random));
    }
  }
  made->session = make_session(made->graph, devices, options.threads);
  made->step = &made->session->prepare(fetches, feeds);
  return made;
}

// `length` no-ops, each after the one before, taking turns on the devices. A single worker merges
// their strands. With `claims` it claims one strand after another, as it does if there are shards.
std::unique_ptr<Case> chain_case(int length, int devices, int threads, const StepOptions& options,
                                 bool claims = false) {
  auto made = std::make_unique<Case>();
  made->model = "launch";
  made->devices = devices;
  made->steps = options.steps > 0 ? options.steps : 200;
  std::vector<Node*> last;
  for (int i = 0; i < length; ++i) {
    DeviceScope on(made->graph, DeviceSpec::local("CPU", i % devices));
    ControlDependencies after(made->graph, last);
    last = {&made->graph.add(kNoOp, {})};
  }
  made->session = make_session(made->graph, devices, threads, claims ? 2 : 1, true);
  made->step = &made->session->prepare({Fetch(*last[0])});
  return made;
}

// The host's work at the end of a step of ResNet-50 on GPUs: it moves all averages of batch norm by
// the towers' moments, which have arrived.
std::unique_ptr<Case> averages_case(int towers, const StepOptions& options) {
  auto made = std::make_unique<Case>();
  made->model = "averages";
  made->devices = towers;
  made->steps = options.steps > 0 ? options.steps : 200;
  std::vector<DeviceSpec> specs;
  for (int k = 0; k < towers; ++k) specs.push_back(DeviceSpec::local("CPU", k));
  const auto records =
      replicate(made->graph, specs, VariablePolicy::kReplicated, [&](Tower& tower) {
        const Output image = placeholder(made->graph, "image", DType::kF32, {1, 224, 224, 3});
        models::resnet(tower, image, placeholder(made->graph, "label", DType::kI32, {1}), 50);
      });
  const std::vector<Node*> updates = made->graph.nodes(kUpdateOps);
  std::vector<FeedType> feeds;
  std::mt19937 random(1);
  for (const TowerRecord& tower : records)
    for (const BatchMoments& layer : tower.moments)
      for (const Output& moment : {layer.mean, layer.variance}) {
        feeds.push_back({moment, moment.shape()});
        made->feeds.push_back(synthetic(moment, random));
      }
  made->session = make_session(made->graph, towers, 1);
  const std::vector<Fetch> fetches{group(made->graph, updates)};
  made->step = &made->session->prepare(fetches, feeds);
  return made;
}

void measure(Case& timed, int warmup) {
  for (int i = 0; i < warmup; ++i) timed.step->run(timed.feeds);
  const double began = seconds_now();
  const std::clock_t cpu = std::clock();
  double previous = began;
  for (int i = 0; i < timed.steps; ++i) {
    timed.step->run(timed.feeds);
    const double now = seconds_now();
    timed.ms.push_back(1e3 * (now - previous));
    previous = now;
  }
  timed.cpu += static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  timed.wall += previous - began;
  for (std::size_t t = 0; t < timed.built.towers.size(); ++t) {
    const double loss = number_in(timed.step->fetched(1 + t), 0);
    require<InternalError>(std::isfinite(loss), "the loss of ", timed.model, " is ", loss);
  }
}

// What the machine does at most: products of matrices, and scaling in place.
class Limits {
 public:
  explicit Limits(int cores)
      : one_(products(1)), all_(products(cores)), bytes_(cpus(1), 1, kBytes, cores) {
    for (Products* const products : {&one_, &all_}) products->run();  // allocates
  }

  double products_on_one() { return rate(one_.flops(), one_); }
  double products_on_all() { return rate(all_.flops(), all_); }
  // Bytes per second, read and written.
  double bandwidth() { return rate(2.0 * kBytes, bytes_); }

 private:
  static constexpr std::int64_t kBytes = 128 << 20;  // larger than any cache

  static std::vector<DeviceSpec> cpus(int count) {
    std::vector<DeviceSpec> devices;
    for (int k = 0; k < count; ++k) devices.push_back(DeviceSpec::local("CPU", k));
    return devices;
  }
  static ProductOptions products(int threads) {
    return {.devices = cpus(threads),
            .session = {.device_count = {{"CPU", threads}}, .threads = threads},
            .chain = 1};
  }
  template <class Work>
  static double rate(double amount, Work& work) {
    const double began = seconds_now();
    work.run();
    return amount / (seconds_now() - began);
  }

  Products one_, all_;
  ByteLimit bytes_;
};

// The results of a run.
struct Results {
  int threads = 0, cores = 0;
  std::vector<double> peak_one, peak_all, scale;  // per round, in operations/s and bytes/s
  std::vector<std::unique_ptr<Case>> training;
  std::vector<std::unique_ptr<Case>> averages;
  std::unique_ptr<Case> single, chain, claims, ping_pong;  // launches; ping_pong needs two workers

  double ns_per_launch() const { return 1e6 * chain->median_ms() / kChainLength; }
  double ns_per_claim() const { return 1e6 * claims->median_ms() / kChainLength - ns_per_launch(); }
  double ns_per_edge() const { return 1e6 * ping_pong->median_ms() / kChainLength; }
};

bool wants(const StepOptions& options, std::string_view model) {
  return std::ranges::find(options.models, model) != options.models.end();
}

void check_models(const StepOptions& options) {
  std::vector<std::string> known{"averages", "launch"};
  for (const Work& work : works()) known.push_back(work.name);
  for (const std::string& model : options.models)
    require<FlagError>(std::ranges::find(known, model) != known.end(), "--models: no '", model,
                       "'; there are ", join(known));
}

Results prepare(const StepOptions& options) {
  check_models(options);
  Results results;
  results.cores = usable_cores();
  results.threads = options.threads > 0 ? options.threads : results.cores;
  for (const Work& work : works()) {
    if (!wants(options, work.name)) continue;
    for (const int devices : options.devices.empty() ? work.devices : options.devices)
      results.training.push_back(training_case(work, devices, options));
  }
  if (wants(options, "averages"))
    for (const int towers : options.devices.empty() ? std::vector{1, 8} : options.devices)
      results.averages.push_back(averages_case(towers, options));
  if (!wants(options, "launch")) return results;
  results.single = chain_case(1, 1, 1, options);
  results.chain = chain_case(kChainLength, 1, 1, options);
  results.claims = chain_case(kChainLength, 2, 1, options, true);
  if (results.threads > 1) results.ping_pong = chain_case(kChainLength, 2, 2, options);
  return results;
}

// Runs all cases in each round, so that slow spells of the machine hit all alike.
void run(const StepOptions& options, Results& results) {
  Limits limits(results.cores);
  for (int round = 0; round < options.rounds; ++round) {
    std::fprintf(stderr, "round %d of %d\n", round + 1, options.rounds);
    results.peak_one.push_back(limits.products_on_one());
    results.peak_all.push_back(limits.products_on_all());
    results.scale.push_back(limits.bandwidth());
    for (const auto* cases : {&results.training, &results.averages})
      for (const auto& timed : *cases) measure(*timed, options.warmup);
    for (const auto* timed : {&results.single, &results.chain, &results.claims, &results.ping_pong})
      if (*timed) measure(**timed, options.warmup);
  }
}

const Case* find(const Results& results, std::string_view model, int devices) {
  for (const auto& timed : results.training)
    if (timed->model == model && timed->devices == devices) return timed.get();
  return nullptr;
}

void print_training(const Work& work, const StepOptions& options, const Results& results) {
  std::printf("\n%s, global batch %d, %s\n", work.title.c_str(), kGlobalBatch,
              options.allreduce.c_str());
  std::printf("  %7s %11s %9s %12s %10s\n", "devices", "median ms", "min ms", "examples/s",
              "cpu/wall");
  for (const auto& timed : results.training) {
    if (timed->model != work.name) continue;
    std::printf("  %7d %11.3f %9.3f %12.0f %10.2f%s\n", timed->devices, timed->median_ms(),
                timed->min_ms(), timed->examples_per_second(), timed->cpu_over_wall(),
                timed->devices == 1 ? "  one device alone uses one core" : "");
  }
  const Case *two = find(results, work.name, 2), *eight = find(results, work.name, 8);
  if (two && eight) std::printf("  K=8 / K=2: %.2f\n", eight->median_ms() / two->median_ms());
}

void print(const StepOptions& options, const Results& results) {
  std::printf("%d workers on %d cores, %d rounds\n", results.threads, results.cores,
              options.rounds);
  std::printf("products: %.0f GFLOP/s on 1 thread, %.0f on %d; scaling in place: %.1f GB/s\n",
              median(results.peak_one) / 1e9, median(results.peak_all) / 1e9, results.cores,
              median(results.scale) / 1e9);
  for (const Work& work : works())
    if (wants(options, work.name)) print_training(work, options, results);
  if (!results.averages.empty())
    std::printf("\nAll averages of ResNet-50's batch norms, one worker\n");
  for (const auto& timed : results.averages)
    std::printf("  by the moments of %3d towers         %9.1f us\n", timed->devices,
                1e3 * timed->median_ms());
  if (!results.chain) return;
  std::printf("\nLaunches of no-ops\n");
  std::printf("  a step of one launch, one worker     %9.2f us\n",
              1e3 * results.single->median_ms());
  std::printf("  per launch, chain of %d           %9.1f ns\n", kChainLength,
              results.ns_per_launch());
  std::printf("  per claim, one worker                %9.1f ns\n", results.ns_per_claim());
  if (results.ping_pong)
    std::printf("  per edge between two workers         %9.1f ns\n", results.ns_per_edge());
}

std::string to_json(const StepOptions& options, const Results& results) {
  std::string json = cat("{\n  \"program\": \"step_bench\",\n  \"threads\": ", results.threads,
                         ",\n  \"rounds\": ", options.rounds, ",\n  \"allreduce\": \"",
                         options.allreduce, "\",\n  \"global_batch\": ", kGlobalBatch,
                         ",\n  \"product_gflops_one_thread\": ", median(results.peak_one) / 1e9,
                         ",\n  \"product_gflops_all_cores\": ", median(results.peak_all) / 1e9,
                         ",\n  \"scale_gb_per_s\": ", median(results.scale) / 1e9);
  std::vector<std::string> rows;
  for (const auto& timed : results.training)
    rows.push_back(cat("\n    {\"model\": \"", timed->model, "\", \"devices\": ", timed->devices,
                       ", \"median_ms\": ", timed->median_ms(), ", \"min_ms\": ", timed->min_ms(),
                       ", \"examples_per_second\": ", timed->examples_per_second(),
                       ", \"cpu_over_wall\": ", timed->cpu_over_wall(), "}"));
  json += cat(",\n  \"steps\": [", join(rows, ","), rows.empty() ? "" : "\n  ", "]");
  rows.clear();
  for (const auto& timed : results.averages)
    rows.push_back(cat("\n    {\"towers\": ", timed->devices,
                       ", \"median_us\": ", 1e3 * timed->median_ms(), "}"));
  json += cat(",\n  \"averages\": [", join(rows, ","), rows.empty() ? "" : "\n  ", "]");
  if (results.chain)
    json += cat(",\n  \"us_per_step_of_one_launch\": ", 1e3 * results.single->median_ms(),
                ",\n  \"ns_per_launch\": ", results.ns_per_launch(),
                ",\n  \"ns_per_claim\": ", results.ns_per_claim());
  if (results.ping_pong) json += cat(",\n  \"ns_per_cross_worker_edge\": ", results.ns_per_edge());
  return json + "\n}\n";
}

int run_bench(int argc, char** argv) {
  const StepOptions options = parse(argc, argv);
  if (options.help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  OutputFiles outputs(local_file_system());
  OutputFile* const json = outputs.open("--json", options.json);
  Results results = prepare(options);
  run(options, results);
  print(options, results);
  if (json) json->write(to_json(options, results));
  outputs.finish();
  return 0;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  return belfry::run_program([&] { return belfry::bench::run_bench(argc, argv); });
}
