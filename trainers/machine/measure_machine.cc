#include "belfry/trainers/machine/measure_machine.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"

namespace belfry {
namespace {

// A graph and the session that runs it.
class Probe {
 public:
  // Its steps run on all workers, or on as many as they can use.
  // `alone`: one worker, because all would share large launches of a single device.
  explicit Probe(const MeasuredDevices& here, bool all_workers = true, bool alone = false)
      : here_(here), all_workers_(all_workers), alone_(alone) {}

  Graph& graph() { return graph_; }

  // A variable of `count` floats on device d.
  Variable floats(std::size_t d, std::int64_t count) {
    DeviceScope on(graph_, here_.devices[d]);
    return variable(graph_, cat("x", variables_++), Shape{count}, {.initializer = init::ones()});
  }

  Output add(std::size_t d, const std::vector<Output>& terms) {
    DeviceScope on(graph_, here_.devices[d]);
    return add_n(terms);
  }

  // variable += other, in place.
  Node& update(std::size_t d, Variable variable, Variable other) {
    DeviceScope on(graph_, here_.devices[d]);
    return sgd_update(variable, static_cast<Output>(other), constant(graph_, -1));
  }

  // Seconds of a step that runs `nodes`, in the fastest round, as other programs only slow rounds
  // down. Takes fewer than `runs` rounds if they are slow.
  double seconds(std::span<Node* const> nodes, int runs) {
    Session session(graph_, {.device_count = device_count(here_.devices),
                             .logical_gpus = here_.logical_gpus,
                             .threads = alone_ ? 1 : here_.threads,
                             .all_workers = all_workers_});
    CompiledStep& step = session.prepare({group(graph_, nodes)});
    Interleaved timer;
    timer.add([&] { step.run(); });
    timer.run(2, runs, 0.1);
    return std::ranges::min(timer.rounds(0));
  }

 private:
  const MeasuredDevices& here_;
  bool all_workers_, alone_;
  Graph graph_;
  int variables_ = 0;
};

class Measurement {
 public:
  explicit Measurement(const MeasuredDevices& here) : here_(here) {}

  MachineDescription run(std::int64_t largest_bytes) {
    machine_.devices = here_.devices;
    machine_.workers = workers();
    machine_.run_us = empty_step(here_.devices.size(), false) * 1e6;
    machine_.wake_us = std::max(0.0, empty_step(here_.devices.size()) * 1e6 - machine_.run_us);
    machine_.launch_us = chain(0, 1, 200, 200) * 1e6;
    machine_.wait_us =
        std::max(0.0, chain(here_.devices.size() - 1, 1, 200, 200) * 1e6 - machine_.launch_us);
    for (std::int64_t bytes = 32 << 10; bytes <= largest_bytes; bytes *= 2) add_bandwidth(bytes);
    machine_.share_us = std::max(0.0, share_overhead() * 1e6);
    if (machine_.workers == 0) add_links(largest_bytes);
    return std::move(machine_);
  }

 private:
  // A GPU does the work of its logical ones in turn: 1. Several GPUs have their own memories: 0.
  int workers() const {
    const auto devices = static_cast<int>(here_.devices.size());
    if (here_.devices[0].type == "CPU") return std::min(here_.threads, devices);
    return devices > 1 && here_.logical_gpus == 1 ? 0 : 1;
  }

  // Seconds of an empty step on `count` devices.
  double empty_step(std::size_t count, bool all_workers = true) {
    double& seconds = empty_steps_[{count, all_workers}];
    if (seconds > 0) return seconds;
    Probe probe(here_, all_workers);
    std::vector<Node*> nodes;
    for (std::size_t d = 0; d < count; ++d) nodes.push_back(&probe.floats(d, 1).read().node());
    return seconds = probe.seconds(nodes, 2000);
  }

  // Seconds of a launch in a chain of `length` that goes between device 0 and `other`. Each launch
  // adds `count` floats of its device to the result of the last.
  double chain(std::size_t other, std::int64_t count, int length, int runs) {
    Probe probe(here_);
    const std::size_t ends[] = {0, other};
    const Output own[] = {probe.floats(0, count), probe.floats(other, count)};
    Output last = own[0];
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i)
      last = probe.add(ends[i % 2], {last, own[i % 2]});
    Node* const node = &last.node();
    const double empty = empty_step(other == 0 ? 1 : 2);
    return std::max(0.0, probe.seconds({&node, 1}, runs) - empty) / length;
  }

  // Seconds per byte of one tensor, in a step that touches `bytes` in tensors of equal size. Each
  // of `active` devices adds `terms` tensors into another, or (`in_place`) a second one into the
  // first.
  double of_a_byte(std::size_t active, std::size_t terms, std::int64_t bytes,
                   bool in_place = false) {
    Probe probe(here_, true, active == 1);
    const std::size_t tensors = active * (in_place ? terms : terms + 1);
    const std::int64_t count = bytes / 4 / static_cast<std::int64_t>(tensors);
    std::vector<Node*> sums;
    for (std::size_t i = 0; i < active; ++i) {
      // These devices belong to different workers.
      const std::size_t d = i * here_.devices.size() / active;
      std::vector<Variable> variables;
      for (std::size_t t = 0; t < terms; ++t) variables.push_back(probe.floats(d, count));
      sums.push_back(in_place ? &probe.update(d, variables[0], variables[1])
                              : &probe.add(d, {variables.begin(), variables.end()}).node());
    }
    const double overhead = empty_step(active) + machine_.launch_us * 1e-6;
    const double seconds = std::max(1e-9, probe.seconds(sums, runs_of(bytes)) - overhead);
    return seconds / (4.0 * static_cast<double>(count) * static_cast<double>(active));
  }

  static int runs_of(std::int64_t bytes) {
    return static_cast<int>(std::clamp<std::int64_t>((256 << 20) / bytes, 25, 1000));
  }

  // The rate, in bytes per second, of reading what another worker wrote, when a step touches
  // `bytes`. `own`: the worker's other reads and writes, in multiples of a tensor.
  double other_rate(std::int64_t bytes, double one, double own) {
    constexpr int kLength = 10;
    const std::int64_t count = bytes / 16;  // a variable and a sum on each of two devices
    const double seconds =
        chain(here_.devices.size() - 1, count, kLength, runs_of(bytes * kLength));
    const double fixed = (machine_.launch_us + machine_.wait_us) * 1e-6;
    const auto each = static_cast<double>(count * 4);
    return each / std::max(each / one, seconds - fixed - own * each / one);
  }

  // Writing costs the time by which sums of few terms exceed their share of sums of many. Sums in
  // place are timed on all workers: one alone has bandwidth left, in which writes are free.
  void add_bandwidth(std::int64_t bytes) {
    constexpr double kDearest = 4;
    const double few = of_a_byte(1, 2, bytes), many = of_a_byte(1, 8, bytes);
    const double read = std::clamp((many - few) / 6, few / (2 + kDearest), few / 2);
    const double one = 1 / read, write = std::max(0.0, few * one - 2);
    const auto workers = static_cast<std::size_t>(std::max(1, machine_.workers));
    const double together = workers > 1 ? of_a_byte(workers, 2, bytes) : few;
    const double all = std::max(one, (2 + write) / together);
    const double in_place = of_a_byte(workers, 2, bytes, true) / together * (2 + write);
    const double rewrite = std::clamp(in_place - 2, 0.0, kDearest);
    const double other = workers > 1 ? other_rate(bytes, one, 1 + write) : one;
    machine_.bandwidth.push_back({bytes, one * 1e-9, all * 1e-9, other * 1e-9, write, rewrite});
  }

  // The seconds that an all-reduce by several workers takes beyond moving its bytes.
  double share_overhead() {
    if (machine_.workers < 2) return 0;
    constexpr std::int64_t kElements = 32 << 10;
    Probe probe(here_);
    GradientRows rows;
    for (std::size_t d = 0; d < here_.devices.size(); ++d)
      rows.push_back({{probe.floats(d, kElements), {}}});
    const GradientTable sums =
        make_strategy("collective")->reduce(GradientTable(rows), {.reduction = Reduction::kSum});
    Node* const node = &sums.at(0, 0).value.node();
    const auto buffers = static_cast<std::int64_t>(here_.devices.size());
    const std::int64_t step_bytes = (buffers + 1) * kElements * 4;
    const Bandwidth bandwidth = machine_.bandwidth_at(step_bytes);
    const double moved = (static_cast<double>(buffers) + bandwidth.write) * kElements * 4;
    return probe.seconds({&node, 1}, 1000) - empty_step(here_.devices.size()) -
           machine_.launch_us * 1e-6 - moved / (bandwidth.all_gbps * 1e9);
  }

  // The seconds that an update on device j takes longer if its `count` floats come from device i.
  double copy_seconds(std::size_t i, std::size_t j, std::int64_t count) {
    const auto seconds = [&](std::size_t from) {
      Probe probe(here_);
      Node* const node = &probe.update(j, probe.floats(j, count), probe.floats(from, count));
      return probe.seconds({&node, 1}, runs_of(count * 4));
    };
    return std::max(1e-9, seconds(i) - seconds(j));
  }

  void add_links(std::int64_t largest_bytes) {
    const std::size_t count = here_.devices.size();
    machine_.links.assign(count, std::vector<Link>(count));
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = i + 1; j < count; ++j) {
        const double latency = copy_seconds(i, j, 1);
        const double seconds = std::max(1e-9, copy_seconds(i, j, largest_bytes / 16) - latency);
        machine_.links[i][j] = {latency * 1e6,
                                static_cast<double>(largest_bytes) / 4 / seconds * 1e-9};
        machine_.links[j][i] = machine_.links[i][j];
      }
  }

  const MeasuredDevices& here_;
  MachineDescription machine_;
  std::map<std::pair<std::size_t, bool>, double> empty_steps_;
};

void require_measurable(const MeasuredDevices& here) {
  const DeviceSpec& first = here.devices.at(0);
  int gpus_needed = 0;
  for (const DeviceSpec& device : here.devices) {
    require(device.type == first.type, first.short_str(), " and ", device.short_str(),
            " are of two kinds, which are not measured beside each other");
    if (device.type == "CPU") continue;
    gpus_needed = std::max(gpus_needed, *device.index / here.logical_gpus + 1);
    require(gpus_needed <= gpus().count(), device.short_str(),
            " is declared, not here to be measured");
  }
  require(here.logical_gpus == 1 || gpus_needed <= 1, "logical GPUs of ", gpus_needed,
          " physical ones are not measured");
}

}  // namespace

MachineDescription measure_machine(const MeasuredDevices& here, std::int64_t largest_bytes) {
  require_measurable(here);
  MeasuredDevices known = here;
  if (known.threads == 0) known.threads = usable_cores();
  const Busy busy("measuring this machine");
  return Measurement(known).run(largest_bytes);
}

}  // namespace belfry
