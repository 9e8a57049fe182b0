#include "belfry/trainers/bench/reduction_bench.h"

#include <algorithm>

#include "belfry/allreduce/choice.h"
#include "belfry/allreduce/cost_model.h"
#include "belfry/allreduce/tower_buffers.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/bench/reduction_oracle.h"
#include "belfry/trainers/bench/timed_limit.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"

namespace belfry {
namespace {

// One strategy's part of the graph, and the steps that run it.
struct Entry {
  ReductionResult result;
  std::vector<Output> sums = {};  // of all towers, tensor by tensor
  Node* place = nullptr;          // writes them to the variables
  Node* compute = nullptr;        // waits for them
  Node* places = nullptr;         // the same options.aggregate times, each behind the one before
  Node* computes = nullptr;
  Step* in_place = nullptr;  // steps of these
  Step* out_of_place = nullptr;
  Step* all_in_place = nullptr;
  Step* all_out_of_place = nullptr;
  int in_place_way = -1, out_of_place_way = -1;  // of Interleaved
};

class Bench {
 public:
  Bench(const std::vector<Shape>& shapes, const ReductionBenchOptions& options,
        bool dry_run = false)
      : shapes_(shapes),
        options_(options),
        dry_run_(dry_run),
        rows_(tower_buffers(graph_, types(), options.devices)) {
    for (const Shape& shape : shapes_) elements_ += shape.elements();
  }

  void add(const std::string& strategy) {
    Entry& entry = entries_.emplace_back(Entry{.result = {.strategy = strategy}});
    attempt(entry, [&] {
      const auto busy = saying_that("building", entry);
      resolve(entry);
      build(entry);
    });
    show("built ", strategy);
  }

  ReductionBench run() {
    prepare();
    if (options_.check) check();
    ReductionBench bench{.elements = elements_, .bytes = bytes()};
    time(bench);
    for (Entry& entry : entries_) bench.results.push_back(std::move(entry.result));
    return bench;
  }

  // Of a dry run: what it would take. A check has a session of its own, a copy of what it fetches,
  // and one device's tensors as they are and should be; afterwards there are the buffers of the
  // limit.
  std::int64_t memory() {
    prepare();
    const std::int64_t buffers = towers() * bytes();
    std::int64_t most = buffers;
    for (Entry& entry : entries_)
      attempt(entry, [&] {
        if (!options_.check) return;
        Session session(graph_, session_options());
        session.prepare(fetches(entry));
        most = std::max(most, host_bytes(session.device_use()) + buffers + 2 * bytes());
      });
    return host_bytes(session_->device_use()) + most;
  }

 private:
  template <class... Parts>
  void show(const Parts&... parts) const {
    show_if_due(options_.console, "# ", bytes(), " bytes: ", parts...);
  }

  // While it lives. A dry run is short, or said to go on by its caller.
  std::optional<Busy> saying_that(const char* does, const Entry& entry) const {
    if (dry_run_) return {};
    return std::optional<Busy>(std::in_place, cat(does, " ", entry.result.strategy));
  }

  std::vector<TensorType> types() const {
    std::vector<TensorType> types;
    for (const Shape& shape : shapes_) types.push_back({shape, options_.dtype});
    return types;
  }

  // Calls `step`; where it throws and refusals are listed, notes why and builds no more of it.
  template <class F>
  void attempt(Entry& entry, const F& step) {
    if (!entry.result.refusal.empty()) return;
    try {
      step();
    } catch (const Error& error) {
      if (!options_.list_refused) throw;
      entry.result.refusal = error.what();
    }
  }

  void resolve(Entry& entry) const {
    entry.result.resolved = entry.result.strategy;
    if (entry.result.strategy != "auto") return;
    require(options_.machine != nullptr, "auto needs a machine to choose by");
    const StrategyChoice choice = choose_strategy(
        accepted_strategies(find_trainer("replicated").accepts), types(),
        options_.machine->devices_for(options_.devices), *options_.machine,
        {.any = options_.auto_any, .reduction = options_.reduction, .work = StepWork::kWhole});
    entry.result.resolved = choice.best().strategy;
    entry.result.reason = choice.str();
  }

  void build(Entry& entry) {
    const std::unique_ptr<Strategy> strategy = make_strategy(entry.result.resolved);
    const std::string refusal =
        strategy->refusal(options_.devices);  // reduce() takes one tower of any
    require(refusal.empty(), refusal);
    entry.result.canonical = strategy->canonical(towers());
    Reduced in_place = reduce(*strategy, rows_);
    Reduced out_of_place = in_place;
    entry.sums = in_place.sums;
    entry.place = &group(graph_, in_place.writes);
    entry.compute = &group(graph_, nodes_of(out_of_place.sums));
    for (int i = 1; i < options_.aggregate; ++i) {
      in_place = reduce(*strategy, rows_behind(in_place.writes));
      out_of_place = reduce(*strategy, rows_behind(nodes_of(out_of_place.sums)));
    }
    entry.places = &group(graph_, in_place.writes);
    entry.computes = &group(graph_, nodes_of(out_of_place.sums));
  }

  // Of all towers, tensor by tensor.
  struct Reduced {
    std::vector<Output> sums = {};
    std::vector<Node*> writes = {};  // of them to the variables
  };

  Reduced reduce(Strategy& strategy, std::vector<std::vector<Gradient>> rows) {
    const GradientTable sums =
        strategy.reduce(GradientTable(std::move(rows)), {.reduction = options_.reduction});
    Reduced reduced;
    for (int n = 0; n < sums.variables(); ++n)
      for (int t = 0; t < towers(); ++t) {
        reduced.sums.push_back(sums.at(t, n).value);
        reduced.writes.push_back(&assign(buffer(t, n), reduced.sums.back()));
      }
    return reduced;
  }

  static std::vector<Node*> nodes_of(const std::vector<Output>& outputs) {
    std::vector<Node*> nodes;
    for (const Output& output : outputs) nodes.push_back(&output.node());
    return nodes;
  }

  // Each variable as it is behind its node: `nodes` are of all towers, tensor by tensor.
  std::vector<std::vector<Gradient>> rows_behind(const std::vector<Node*>& nodes) {
    std::vector<std::vector<Gradient>> rows = rows_;
    for (std::size_t t = 0; t < rows.size(); ++t)
      for (std::size_t n = 0; n < rows[t].size(); ++n) {
        Node* const before = nodes[n * rows.size() + t];
        const DeviceScope on(graph_, options_.devices[t]);
        const ControlDependencies behind(graph_, std::span(&before, 1));
        rows[t][n].value = rows[t][n].variable.read();
      }
    return rows;
  }

  void prepare() {
    session_ = std::make_unique<Session>(graph_, session_options());
    for (Entry& entry : entries_) {
      attempt(entry, [&] {
        const auto busy = saying_that("preparing", entry);
        entry.in_place = &session_->prepare({*entry.place});
        entry.out_of_place = &session_->prepare({*entry.compute});
        const bool several = options_.aggregate > 1;
        entry.all_in_place = several ? &session_->prepare({*entry.places}) : entry.in_place;
        entry.all_out_of_place =
            several ? &session_->prepare({*entry.computes}) : entry.out_of_place;
        if (!options_.machine || !describes_here(*options_.machine)) return;
        entry.result.in_place.predicted = predicted(*entry.in_place);
        entry.result.out_of_place.predicted = predicted(*entry.out_of_place);
      });
      show("prepared ", entry.result.strategy);
    }
  }

  bool describes_here(const Machine& machine) const {
    return machine.links.empty() && machine.devices_for(options_.devices) == options_.devices;
  }

  // Nothing for plans with devices that the machine lacks.
  std::optional<double> predicted(const Step& step) const {
    try {
      return predict_seconds(*step.plan(), session_->devices(), *options_.machine,
                             StepWork::kWhole);
    } catch (const NotFound&) {
      return {};
    }
  }

  void check() {
    std::vector<ReductionOracle> oracles;
    for (const Shape& shape : shapes_)
      oracles.emplace_back(shape, options_.dtype, towers(), options_.reduction);
    for (Entry& entry : entries_)
      attempt(entry, [&] {
        check_in_place(entry, oracles);
        check_out_of_place(entry, oracles);
      });
  }

  void write_inputs(Session& session, const std::vector<ReductionOracle>& oracles) const {
    for (std::size_t n = 0; n < oracles.size(); ++n)
      for (int t = 0; t < towers(); ++t) {
        session.write(buffer(t, static_cast<int>(n)), oracles[n].input(t));
        show("writing what is summed");
      }
  }

  void check_in_place(Entry& entry, const std::vector<ReductionOracle>& oracles) {
    write_inputs(*session_, oracles);
    {
      const auto busy = saying_that("checking", entry);
      entry.in_place->run();
    }
    std::int64_t& wrong = entry.result.in_place.wrong.emplace(0);
    for (std::size_t n = 0; n < oracles.size(); ++n)
      for (int t = 0; t < towers(); ++t) {
        wrong += oracles[n].wrong(session_->read(buffer(t, static_cast<int>(n))),
                                  entry.result.canonical);
        show("checking ", entry.result.strategy);
      }
  }

  // In a session of its own: fetches hold copies of all sums, and go with it.
  void check_out_of_place(Entry& entry, const std::vector<ReductionOracle>& oracles) const {
    Session session(graph_, session_options());
    write_inputs(session, oracles);
    const std::vector<Tensor> sums = [&] {
      const auto busy = saying_that("checking", entry);
      return session.run(fetches(entry));
    }();
    std::int64_t& wrong = entry.result.out_of_place.wrong.emplace(0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      wrong +=
          oracles[i / static_cast<std::size_t>(towers())].wrong(sums[i], entry.result.canonical);
      show("checking ", entry.result.strategy);
    }
  }

  void time(ReductionBench& bench) {
    Interleaved ways;
    const TimedLimit limit(ways, options_, bench.bytes, std::min(session_->threads(), towers()));
    for (Entry& entry : entries_) {
      if (!entry.result.refusal.empty()) continue;
      entry.out_of_place_way = ways.add([step = entry.all_out_of_place] { step->run(); });
      entry.in_place_way = ways.add([step = entry.all_in_place] { step->run(); });
    }
    ways.on_call([&](std::int64_t made, std::int64_t all) { show("run ", made, "/", all); });
    ways.run(options_.warmup, options_.iterations);
    bench.limit_seconds = limit.seconds();
    for (Entry& entry : entries_) {
      if (!entry.result.refusal.empty()) continue;
      entry.result.out_of_place.seconds = ways.seconds(entry.out_of_place_way) / options_.aggregate;
      entry.result.in_place.seconds = ways.seconds(entry.in_place_way) / options_.aggregate;
    }
  }

  static std::vector<Fetch> fetches(const Entry& entry) {
    return std::vector<Fetch>(entry.sums.begin(), entry.sums.end());
  }
  SessionOptions session_options() const {
    return {.device_count = device_count(options_.devices),
            .logical_gpus = options_.logical_gpus,
            .dry_run = dry_run_,
            .threads = options_.threads,
            .deterministic = options_.deterministic};
  }
  std::int64_t bytes() const {
    return elements_ * static_cast<std::int64_t>(size_of(options_.dtype));
  }
  int towers() const { return static_cast<int>(rows_.size()); }
  Variable buffer(int t, int n) const {
    return rows_[static_cast<std::size_t>(t)][static_cast<std::size_t>(n)].variable;
  }

  const std::vector<Shape>& shapes_;
  const ReductionBenchOptions& options_;
  bool dry_run_;
  std::int64_t elements_ = 0;
  Graph graph_;
  std::vector<std::vector<Gradient>> rows_;
  std::vector<Entry> entries_;
  std::unique_ptr<Session> session_;
};

}  // namespace

ReductionBench bench_reduction(const std::vector<Shape>& shapes,
                               const std::vector<std::string>& strategies,
                               const ReductionBenchOptions& options) {
  Bench bench(shapes, options);
  for (const std::string& strategy : strategies) bench.add(strategy);
  return bench.run();
}

std::int64_t reduction_memory(const std::vector<Shape>& shapes,
                              const std::vector<std::string>& strategies,
                              const ReductionBenchOptions& options) {
  Bench bench(shapes, options, true);
  for (const std::string& strategy : strategies)
    bench.add(strategy == "auto" ? "collective" : strategy);
  return bench.memory();
}

std::string reduction_refusal(const std::vector<Shape>& shapes, std::string_view strategy,
                              const ReductionBenchOptions& options) {
  const std::unique_ptr<Strategy> made = make_strategy(strategy);
  std::string why = made->refusal(options.devices);
  if (!why.empty()) return why;
  try {
    std::vector<TensorType> types;
    for (const Shape& shape : shapes) types.push_back({shape, options.dtype});
    const Machine machine{.devices = options.devices, .bandwidth = {{1, 1, 1}}};
    predict_reduction(*made, types, options.devices, machine, options.reduction);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

double bus_bandwidth(std::int64_t bytes, double seconds, int devices) {
  return 2.0 * (devices - 1) / devices * static_cast<double>(bytes) / seconds;
}

}  // namespace belfry
