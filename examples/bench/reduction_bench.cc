#include "reduction_bench.h"

#include <algorithm>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/prediction/choice.h"
#include "belfry/allreduce/prediction/cost_model.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"
#include "byte_limit.h"
#include "reduction_check.h"

namespace belfry {
namespace {

// A strategy, and the steps that run it.
struct Entry {
  ReductionResult result;
  ReductionNodes nodes = {};
  CompiledStep* in_place = nullptr;
  CompiledStep* out_of_place = nullptr;
  CompiledStep* all_in_place = nullptr;  // options.aggregate times
  CompiledStep* all_out_of_place = nullptr;
  int in_place_way = -1, out_of_place_way = -1;  // numbers in Interleaved
};

// Why the strategy cannot combine tensors of these devices in all processes.
std::string refusal_of(const std::string& name, const ReductionBenchOptions& options) {
  const std::unique_ptr<Strategy> strategy = make_strategy(name);
  if (options.place.size == 1) return strategy->refusal(options.devices);
  if (parse_all_reduce_spec(name).uses("mpi") && options.processes &&
      options.processes->transport() != "MPI")
    return cat("it adds by MPI, and ", options.processes->transport(),
               " carries messages here; start the processes by mpirun");
  return strategy->refusal_of_processes(options.devices);
}

class Bench {
 public:
  Bench(const std::vector<Shape>& shapes, const ReductionBenchOptions& options,
        bool dry_run = false)
      : options_(options), dry_run_(dry_run), graph_(shapes, options) {}

  void add(const std::string& strategy) {
    Entry& entry = entries_.emplace_back(Entry{.result = {.strategy = strategy}});
    attempt(entry, [&] {
      const auto busy = saying_that("building", entry.result);
      resolve(entry.result);
      const std::unique_ptr<Strategy> made = make_strategy(entry.result.resolved);
      const std::string refusal =
          refusal_of(entry.result.resolved, options_);  // reduce() takes one of any
      require(refusal.empty(), refusal);
      entry.result.canonical = made->canonical(options_.towers());
      entry.nodes = graph_.add(*made);
    });
    show("built ", strategy);
  }

  ReductionBench run() {
    prepare();
    if (options_.check) check();
    ReductionBench bench{.elements = graph_.elements(), .bytes = graph_.bytes()};
    time(bench);
    if (options_.processes) combine(*options_.processes, bench);
    for (Entry& entry : entries_) bench.results.push_back(std::move(entry.result));
    return bench;
  }

  // The memory that a dry run's options would take. A check holds its own session, a copy of what
  // it fetches, and two copies of one device's tensors. The buffers of the limit come afterwards.
  std::int64_t memory() {
    prepare();
    const std::int64_t buffers = graph_.towers() * graph_.bytes();
    std::int64_t most = buffers;
    for (Entry& entry : entries_)
      attempt(entry, [&] {
        if (!options_.check) return;
        Session session(graph_.graph(), session_options());
        session.prepare(entry.nodes.fetches());
        most = std::max(most, host_bytes(session.device_use()) + buffers + 2 * graph_.bytes());
      });
    return host_bytes(session_->device_use()) + most;
  }

 private:
  template <class... Parts>
  void show(const Parts&... parts) const {
    show_if_due(options_.console, "# ", graph_.bytes(), " bytes: ", parts...);
  }

  // Shows `does` while it lives. A dry run is short, or its caller shows progress.
  std::optional<Busy> saying_that(const char* does, const ReductionResult& result) const {
    if (dry_run_) return {};
    return std::optional<Busy>(std::in_place, cat(does, " ", result.strategy));
  }

  // Calls `step`. If it throws and refusals are listed, notes why and builds no more of the entry.
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

  void resolve(ReductionResult& result) const {
    result.resolved = result.strategy;
    if (result.strategy != "auto") return;
    require(options_.machine != nullptr, "auto needs a machine to choose by");
    const StrategyChoice choice =
        choose_strategy(accepted_strategies(find_trainer("replicated").accepts), graph_.types(),
                        options_.machine->devices_for(options_.devices), *options_.machine,
                        {.any = options_.auto_any,
                         .reduction = options_.reduction,
                         .extent = PlanExtent::kWholeStep});
    result.resolved = choice.best().strategy;
    result.reason = choice.str();
  }

  void prepare() {
    session_ = std::make_unique<Session>(graph_.graph(), session_options());
    for (Entry& entry : entries_) {
      attempt(entry, [&] {
        const auto busy = saying_that("preparing", entry.result);
        prepare(entry);
      });
      show("prepared ", entry.result.strategy);
    }
  }

  void prepare(Entry& entry) {
    const ReductionNodes& nodes = entry.nodes;
    entry.in_place = &session_->prepare({*nodes.place});
    entry.out_of_place = &session_->prepare({*nodes.compute});
    const bool several = options_.aggregate > 1;
    entry.all_in_place = several ? &session_->prepare({*nodes.places}) : entry.in_place;
    entry.all_out_of_place = several ? &session_->prepare({*nodes.computes}) : entry.out_of_place;
    if (!options_.machine || !describes_here(*options_.machine)) return;
    entry.result.in_place.predicted = predicted(*entry.in_place);
    entry.result.out_of_place.predicted = predicted(*entry.out_of_place);
  }

  bool describes_here(const MachineDescription& machine) const {
    return machine.links.empty() && machine.devices_for(options_.devices) == options_.devices;
  }

  // Empty for plans with devices that the machine lacks.
  std::optional<double> predicted(const CompiledStep& step) const {
    try {
      return predict_seconds(*step.plan(), session_->devices(), *options_.machine,
                             PlanExtent::kWholeStep);
    } catch (const NotFoundError&) {
      return {};
    }
  }

  void check() {
    const ReductionCheck check(
        graph_, options_, [this](const char* what, const std::string& name) { show(what, name); });
    for (Entry& entry : entries_)
      attempt(entry, [&] {
        ReductionResult& result = entry.result;
        const auto busy = saying_that("checking", result);
        result.in_place.wrong = check.wrong_in_place(result, *session_, *entry.in_place);
        Session fetching(graph_.graph(), session_options());  // holds copies of all sums
        result.out_of_place.wrong = check.wrong_out_of_place(result, fetching, entry.nodes);
      });
  }

  void time(ReductionBench& bench) {
    Interleaved ways;
    if (options_.processes) ways.count_alike();
    ByteLimit limit(options_.devices, options_.logical_gpus, bench.bytes,
                    std::min(session_->threads(), graph_.towers()));
    const int limit_way = ways.add([&] { limit.run(options_.aggregate); });
    // The byte limit fills the caches with its own buffers. A run whose time is ignored brings
    // those of the strategies back, so that the first strategy is timed like the others.
    const auto first = std::ranges::find_if(
        entries_, [](const Entry& entry) { return entry.result.refusal.empty(); });
    if (first != entries_.end()) ways.add([step = first->all_in_place] { step->run(); });
    for (Entry& entry : entries_) {
      if (!entry.result.refusal.empty()) continue;
      entry.out_of_place_way = ways.add([step = entry.all_out_of_place] { step->run(); });
      entry.in_place_way = ways.add([step = entry.all_in_place] { step->run(); });
    }
    ways.on_call([&](std::int64_t made, std::int64_t all) { show("run ", made, "/", all); });
    ways.run(options_.warmup, options_.iterations);
    bench.limit_seconds = ways.seconds(limit_way) / options_.aggregate;
    for (Entry& entry : entries_) {
      if (!entry.result.refusal.empty()) continue;
      entry.result.out_of_place.seconds = ways.seconds(entry.out_of_place_way) / options_.aggregate;
      entry.result.in_place.seconds = ways.seconds(entry.in_place_way) / options_.aggregate;
    }
  }

  // Takes the times of the slowest process, and the wrong elements of all.
  void combine(Processes& processes, ReductionBench& bench) {
    JsonValue own = JsonValue::array();
    own.push(bench.limit_seconds);
    for (const Entry& entry : entries_)
      for (const ReductionTiming* timing : {&entry.result.out_of_place, &entry.result.in_place})
        own.push(timing->seconds).push(timing->wrong.value_or(0));
    const std::vector<std::string> all = processes.gather(own.str());
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (static_cast<int>(r) == processes.rank()) continue;
      const JsonValue other = JsonValue::parse(all[r]);
      auto next = other.items().begin();
      const auto slower = [&](double& seconds) { seconds = std::max(seconds, (next++)->number()); };
      slower(bench.limit_seconds);
      for (Entry& entry : entries_)
        for (ReductionTiming* timing : {&entry.result.out_of_place, &entry.result.in_place}) {
          slower(timing->seconds);
          const std::int64_t wrong = (next++)->integer();
          if (timing->wrong) *timing->wrong += wrong;
        }
    }
  }

  SessionOptions session_options() const {
    return {.device_count = device_count(options_.devices),
            .logical_gpus = options_.logical_gpus,
            .dry_run = dry_run_,
            .deterministic = options_.deterministic,
            .threads = options_.threads,
            .processes = options_.processes,
            .planned_place = dry_run_ ? options_.place : ProcessPlace()};
  }

  const ReductionBenchOptions& options_;
  bool dry_run_;
  ReductionGraph graph_;
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
  std::string why = refusal_of(std::string(strategy), options);
  if (!why.empty()) return why;
  try {
    if (options.place.size > 1) {
      ReductionGraph(shapes, options).add(*made);
      return "";
    }
    std::vector<TensorType> types;
    for (const Shape& shape : shapes) types.push_back({shape, options.dtype});
    const MachineDescription machine{.devices = options.devices, .bandwidth = {{1, 1, 1}}};
    predict_reduction(*made, types, options.devices, machine, {options.reduction});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

double bus_bandwidth(std::int64_t bytes, double seconds, int devices) {
  return 2.0 * (devices - 1) / devices * static_cast<double>(bytes) / seconds;
}

}  // namespace belfry
