#include "belfry/trainers/measure_machine.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "belfry/allreduce/collective.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/device.h"
#include "belfry/framework/log.h"
#include "belfry/framework/scopes.h"
#include "belfry/framework/session.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/flag_values.h"
#include "belfry/trainers/interleaved.h"

namespace belfry {
namespace {

// A graph and the session that runs it.
class Probe {
 public:
  Probe(std::span<const DeviceSpec> devices, int threads) : devices_(devices), threads_(threads) {}

  Graph& graph() { return graph_; }

  // A variable of so many floats on device d.
  Variable floats(std::size_t d, std::int64_t count) {
    DeviceScope on(graph_, devices_[d]);
    return variable(graph_, cat("x", variables_++), Shape{count}, {.initializer = init::ones()});
  }

  Output add(std::size_t d, Output a, Output b) {
    DeviceScope on(graph_, devices_[d]);
    return add_n({a, b});
  }

  // Seconds of a step for the effect of `nodes`: of the fastest round, as others only add to it.
  double seconds(std::span<Node* const> nodes, int runs) {
    Session session(graph_, {.device_count = device_count(devices_), .threads = threads_});
    Step& step = session.prepare({group(graph_, nodes)});
    Interleaved timer;
    timer.add([&] { step.run(); });
    timer.run(2, runs);
    return std::ranges::min(timer.rounds(0));
  }

 private:
  std::span<const DeviceSpec> devices_;
  int threads_;
  Graph graph_;
  int variables_ = 0;
};

class Measurement {
 public:
  Measurement(std::span<const DeviceSpec> devices, int threads)
      : devices_(devices), threads_(threads) {}

  Machine run() {
    machine_.devices.assign(devices_.begin(), devices_.end());
    machine_.workers = std::min(threads_, static_cast<int>(devices_.size()));
    machine_.run_us = empty_step(devices_.size()) * 1e6;
    machine_.launch_us = chain(0) * 1e6;
    machine_.wait_us = std::max(0.0, chain(devices_.size() - 1) * 1e6 - machine_.launch_us);
    for (std::int64_t bytes = 32 << 10; bytes <= 128 << 20; bytes *= 4) add_bandwidth(bytes);
    machine_.share_us = std::max(0.0, share_overhead() * 1e6);
    return std::move(machine_);
  }

 private:
  // On so many devices.
  double empty_step(std::size_t count) {
    Probe probe(devices_, threads_);
    std::vector<Node*> nodes;
    for (std::size_t d = 0; d < count; ++d) nodes.push_back(&probe.floats(d, 1).read().node());
    return probe.seconds(nodes, 2000);
  }

  // Of a launch in a chain that goes between device 0 and `other`.
  double chain(std::size_t other) {
    constexpr int kLength = 200;
    Probe probe(devices_, threads_);
    const Output one = probe.floats(0, 1);
    Output last = one;
    for (int i = 0; i < kLength; ++i) last = probe.add(i % 2 == 0 ? 0 : other, last, one);
    Node* const node = &last.node();
    const double empty = empty_step(other == 0 ? 1 : 2);
    return std::max(0.0, probe.seconds({&node, 1}, 200) - empty) / kLength;
  }

  // Sums of two on `active` devices, in a step that touches `bytes` in all: bytes per second.
  double rate(std::size_t active, std::int64_t bytes) {
    Probe probe(devices_, threads_);
    const std::int64_t count = bytes / 12 / static_cast<std::int64_t>(active);
    std::vector<Node*> sums;
    for (std::size_t i = 0; i < active; ++i) {
      // The devices of different workers.
      const std::size_t d = i * devices_.size() / active;
      sums.push_back(&probe.add(d, probe.floats(d, count), probe.floats(d, count)).node());
    }
    const int runs = static_cast<int>(std::clamp<std::int64_t>((256 << 20) / bytes, 5, 1000));
    const double overhead = empty_step(active) + machine_.launch_us * 1e-6;
    const double moved = 16.0 * static_cast<double>(count) * static_cast<double>(active);
    return moved / std::max(1e-9, probe.seconds(sums, runs) - overhead);
  }

  void add_bandwidth(std::int64_t bytes) {
    const double one = rate(1, bytes) * 1e-9;
    const auto workers = static_cast<std::size_t>(machine_.workers);
    machine_.bandwidth.push_back({bytes, one, workers > 1 ? rate(workers, bytes) * 1e-9 : one});
  }

  // What an all-reduce that workers share takes above its bytes.
  double share_overhead() {
    if (machine_.workers < 2) return 0;
    constexpr std::int64_t kElements = 32 << 10;
    Probe probe(devices_, threads_);
    std::vector<std::vector<Gradient>> rows;
    for (std::size_t d = 0; d < devices_.size(); ++d)
      rows.push_back({{probe.floats(d, kElements), {}}});
    const GradientTable sums = allreduce_collective(GradientTable(rows), Reduction::kSum);
    Node* const node = &sums.at(0, 0).value.node();
    const auto buffers = static_cast<std::int64_t>(devices_.size());
    const std::int64_t step_bytes = (buffers + 1) * kElements * 4;
    const double moved = static_cast<double>((buffers + 2) * kElements * 4);
    return probe.seconds({&node, 1}, 1000) - (machine_.run_us + machine_.launch_us) * 1e-6 -
           moved / (machine_.bandwidth_at(step_bytes).all_gbps * 1e9);
  }

  std::span<const DeviceSpec> devices_;
  int threads_;
  Machine machine_;
};

Machine read_machine(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path);
  return parse_machine(Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

// The machine that is kept there, if it is of these devices.
std::optional<Machine> kept(FileSystem& files, const std::string& path,
                            std::span<const DeviceSpec> devices) {
  if (!files.exists(path)) return {};
  try {
    Machine machine = read_machine(files, path);
    if (std::ranges::equal(machine.devices, devices)) return machine;
    log_info(path, " is of other devices; measuring again");
  } catch (const Error& error) {
    log_warning(path, ": ", error.what(), "; measuring again");
  }
  return {};
}

}  // namespace

Machine measure_machine(std::span<const DeviceSpec> devices, int threads) {
  return Measurement(devices, threads > 0 ? threads : usable_cores()).run();
}

void require_measurable(std::span<const DeviceSpec> devices) {
  for (const DeviceSpec& device : devices)
    require(
        device.type == "CPU", device.short_str(),
        " is declared, not here to be measured; describe the machine with --links=FILE, or name "
        "a strategy");
}

std::string cache_directory() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return cat(cache, "/belfry");
  const char* const home = std::getenv("HOME");
  return home && home[0] == '/' ? cat(home, "/.cache/belfry") : "";
}

Machine find_machine(FileSystem& files, std::span<const DeviceSpec> devices,
                     const MachineOptions& options) {
  if (!options.links.empty()) {
    try {
      return read_machine(files, options.links);
    } catch (const Error& error) {
      throw InvalidArgument(cat("--links=", options.links, ": ", error.what()));
    }
  }
  require_measurable(devices);
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  const std::string path =
      cat(options.cache, "/machine-", devices.size(), "-devices-", threads, "-threads.json");
  if (!options.cache.empty() && !options.remeasure)
    if (std::optional<Machine> machine = kept(files, path, devices)) return *std::move(machine);
  log_info("measuring what ", devices.size(), " devices on ", threads,
           " threads can do, which takes about a second");
  Machine machine = options.measure(devices, threads);
  if (options.cache.empty()) return machine;
  try {
    files.create_directory(options.cache);
    write_text_file(files, path, to_json(machine).str(2) + "\n");
  } catch (const IoError& error) {
    log_warning("the measured machine is not kept: ", error.what());
  }
  return machine;
}

}  // namespace belfry
