// Measures the cost of saves that run beside the training, and of a comparison of copies; see
// docs/benchmarks.md.
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "belfry/belfry.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry::bench {
namespace {

struct SaveOptionsOfBench {
  std::string model = "resnet20", folder, help;
  int devices = 2, batch_size = 16, steps = 100, pairs = 7, image_size = 0;
};

SaveOptionsOfBench parse(std::span<const char* const> arguments, const std::string& program) {
  SaveOptionsOfBench wanted;
  FlagParser parser("Times windows of training steps in turns, with a save in every other one.",
                    program);
  parser.add("--model", wanted.model, "NAME", "as of train_bench [resnet20]");
  parser.add("--image_size", wanted.image_size, 1, 1 << 14, "N", "pixels [the model's]");
  parser.add("--devices", wanted.devices, 1, 64, "K", "CPU devices [2]");
  parser.add("--batch_size", wanted.batch_size, 1, 1 << 20, "N", "samples per device [16]");
  parser.add("--steps", wanted.steps, 2, 1 << 20, "N", "steps of a window [100]");
  parser.add("--pairs", wanted.pairs, 1, 1000, "N", "windows with a save, as many without [7]");
  parser.add_argument("RUN_DIR", wanted.folder, "a new folder, which stays",
                      FlagParser::Needed::kYes);
  wanted.help = parser.parse(arguments);
  return wanted;
}

double cpu_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Window {
  double wall, cpu;  // seconds; `cpu`: of the whole process
};

// Stands before the saver, and times windows of steps. The first window warms up.
struct Windows final : Callback {
  Windows(RunSaver& s, int n) : saver(s), steps(n) {}
  void before_step(Trainer&, const StepInfo& info) override {
    if (info.step % steps != 0) return;
    const Window now{seconds_now(), cpu_seconds()};
    if (info.step > 0) windows.push_back({now.wall - began.wall, now.cpu - began.cpu});
    began = now;
    if (info.step / steps % 2 == 1) saver.save_soon();
  }
  RunSaver& saver;
  const int steps;
  Window began = {};
  std::vector<Window> windows;
};

// Stands behind the saver, and times the saver's work before a step.
struct Held final : Callback {
  explicit Held(const Windows& w) : windows(w) {}
  void before_step(Trainer&, const StepInfo& info) override {
    if (info.step % windows.steps == 0 && info.step / windows.steps % 2 == 1)
      seconds.push_back(seconds_now() - windows.began.wall);
  }
  const Windows& windows;
  std::vector<double> seconds;
};

void print(const Windows& windows, const Held& held) {
  std::vector<double> wall, cpu, cpu_ms;
  for (std::size_t w = 1; w + 1 < windows.windows.size(); w += 2) {
    const Window &with = windows.windows[w], &without = windows.windows[w + 1];
    wall.push_back(100 * (with.wall / without.wall - 1));
    cpu.push_back(100 * (with.cpu / without.cpu - 1));
    cpu_ms.push_back(1e3 * without.cpu);
    std::printf("pair: %8.1f ms with a save, %8.1f ms without; of the processor %8.1f and %8.1f\n",
                1e3 * with.wall, 1e3 * without.wall, 1e3 * with.cpu, 1e3 * without.cpu);
  }
  std::printf("%d steps take the processor for        %9.1f ms\n", windows.steps, median(cpu_ms));
  std::printf("a save adds to their time             %9.2f %% (median of %zu pairs)\n",
              median(wall), wall.size());
  std::printf("and to that of the processor          %9.2f %%\n", median(cpu));
  std::printf("the training waits for a save         %9.2f ms\n", 1e3 * median(held.seconds));
}

// Compares copies of a trainer whose replicas have memory of their own.
void print_comparison(Trainer& trainer) {
  std::vector<double> seconds;
  for (int i = 0; i < 20; ++i) {
    const double began = seconds_now();
    require_equal_replicas(trainer.session(), trainer.graph(), trainer.steps());
    seconds.push_back(seconds_now() - began);
  }
  std::printf("a comparison of all copies takes      %9.2f ms\n", 1e3 * median(seconds));
}

int run(const SaveOptionsOfBench& wanted) {
  const ModelSpec spec = find_model(wanted.model, wanted.image_size);
  const auto data =
      synthetic_data(spec.fields, spec.classes, wanted.batch_size * wanted.devices, 1);
  RunDirectory directory(wanted.folder);
  const auto saver = std::make_shared<RunSaver>(directory, SaveSchedule{.every_epochs = 0});
  const auto windows = std::make_shared<Windows>(*saver, wanted.steps);
  const auto held = std::make_shared<Held>(*windows);
  std::vector<DeviceSpec> devices;
  for (int d = 0; d < wanted.devices; ++d) devices.push_back(DeviceSpec::local("CPU", d));
  const int steps = (2 * wanted.pairs + 1) * wanted.steps + 1;
  TrainerOptions options;
  options.model = spec.model;
  options.optimizer = spec.optimizer;
  options.devices = devices;
  options.batch_size = wanted.batch_size;
  options.epochs = steps;
  options.callbacks = {windows, saver, held};
  options.session.share_replicas = false;
  Trainer trainer(find_trainer(wanted.devices > 1 ? "replicated" : "simple"), std::move(options),
                  *data);
  trainer.train();
  print(*windows, *held);
  print_comparison(trainer);
  return 0;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  return belfry::run_program(argc, argv, belfry::bench::parse, belfry::bench::run);
}
