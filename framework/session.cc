#include "belfry/framework/session.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "belfry/framework/explain.h"
#include "belfry/framework/log.h"
#include "belfry/framework/step.h"
#include "belfry/framework/trace.h"

namespace belfry {
namespace {

int worker_count(int asked) {
  require(asked >= 0 && asked <= 1024, "threads must be from 0 (one per usable core) to 1024, not ",
          asked);
  const int cores = usable_cores();
  if (asked > cores)
    log_warning(asked, " threads were asked for, but only ", cores,
                " cores can be used; the run may be slower");
  return asked == 0 ? cores : asked;
}

}  // namespace

struct Session::State {
  struct Stored {
    int device;
    std::int64_t bytes;
    int since;      // the number of plans when it was made
    Buffer memory;  // empty in a dry run
  };

  struct Prepared {
    std::vector<Fetch> fetches;
    std::vector<FeedType> feeds;
    int number = 0;  // of the plan, from 1
    std::unique_ptr<Step> step;
  };

  State(const Graph& g, SessionOptions o)
      : graph(g),
        options(std::move(o)),
        devices(make_devices(options)),
        threads(worker_count(options.threads)),
        // A lane is one worker's, so more workers than devices would have nothing to do.
        pool(options.dry_run ? 1 : std::min(threads, static_cast<int>(devices.size()))),
        runner{devices, pool, [this](const Node& node) { return stored(node).memory.data(); }, {}} {
    runner.dry = options.dry_run;
    if (options.log_device_placement) print(device_mapping(devices));
  }

  void print(const std::string& lines) const {
    log_debug(lines);
    if (options.placement_sink) return options.placement_sink(lines);
    std::fwrite(lines.data(), 1, lines.size(), stdout);
    std::fflush(stdout);
  }

  Stored& stored(const Node& node) {
    const auto found = variables.find(&node);
    require<Internal>(found != variables.end(), node.describe(), " has no memory yet");
    return found->second;
  }

  // As it was for plan `number`: variables that were made for it, or later, are nowhere yet.
  PlanContext context(bool log_placement, int number) {
    return {devices,
            [this, number](const Node& node) {
              const auto found = variables.find(&node);
              const bool placed = found != variables.end() && found->second.since < number;
              return placed ? found->second.device : -1;
            },
            options.allow_soft_placement, log_placement, options.reference_kernels};
  }
  PlanContext context(bool log_placement) { return context(log_placement, plans + 1); }

  std::unique_ptr<Step::State> build(std::span<const Fetch> fetches,
                                     std::span<const FeedType> feeds, bool log_placement) {
    for (const Fetch& fetch : fetches)
      require(&fetch.node->graph() == &graph, fetch.node->describe(),
              ": belongs to another graph than the session's");
    Plan plan = compile(fetches, feeds, context(log_placement));
    if (log_placement) print(placement_lines(plan, devices));
    if (log_enabled(LogLevel::kDebug)) log_debug(plan.str(devices));
    check_limits(plan);
    initialise(plan);
    return std::make_unique<Step::State>(std::move(plan), runner);
  }

  // By the plan, before anything is allocated.
  void check_limits(const Plan& plan) const {
    std::vector<DeviceUse> uses = device_use();
    for (std::size_t d = 0; d < uses.size(); ++d) uses[d].peak_bytes += plan.arena_bytes[d];
    for (const PlanNode& planned : plan.nodes)
      if (stored_by(planned) && !variables.contains(planned.node))
        uses[static_cast<std::size_t>(planned.device())].peak_bytes += planned.types[0].bytes();
    for (std::size_t d = 0; d < uses.size(); ++d) {
      const std::int64_t limit = devices[d]->memory.limit();
      require<OutOfMemory>(limit == 0 || uses[d].peak_bytes <= limit, uses[d].device,
                           ": its plans need ", uses[d].peak_bytes, " bytes, of which ",
                           plan.arena_bytes[d], " for this one's arena, but its limit is ", limit,
                           "; use a smaller batch or more devices");
    }
  }

  std::vector<DeviceUse> device_use() const {
    std::vector<DeviceUse> uses;
    for (const auto& device : devices)
      uses.push_back({.device = device->spec, .declared = device->declared});
    for (const auto& [node, kept] : variables) {
      DeviceUse& use = uses[static_cast<std::size_t>(kept.device)];
      ++use.variables;
      use.variable_bytes += kept.bytes;
      use.peak_bytes += kept.bytes;
    }
    for (const auto& [key, prepared] : steps)
      for (std::size_t d = 0; d < uses.size() && prepared.step; ++d)
        uses[d].peak_bytes += prepared.step->plan().arena_bytes[d];
    return uses;
  }

  // The plan node is the storage of a variable.
  static bool stored_by(const PlanNode& planned) {
    return planned.node->is_variable() && planned.op == &planned.node->op();
  }

  // Gives the variables of a plan memory and a first value. A replica's is its original's.
  void initialise(const Plan& plan) {
    std::vector<const Node*> fresh;
    try {
      for (const PlanNode& planned : plan.nodes)
        if (stored_by(planned) && !variables.contains(planned.node)) {
          fresh.push_back(planned.node);
          const std::int64_t bytes = planned.types[0].bytes();
          Buffer memory;
          if (!options.dry_run)
            memory = Buffer(devices[static_cast<std::size_t>(planned.device())]->memory,
                            static_cast<std::size_t>(bytes));
          variables.emplace(planned.node,
                            Stored{planned.device(), bytes, plans, std::move(memory)});
        }
      if (!options.dry_run) fill_in(fresh);
    } catch (...) {  // what has no first value does not exist
      for (const Node* node : fresh) variables.erase(node);
      throw;
    }
  }

  void fill_in(const std::vector<const Node*>& fresh) {
    std::vector<const Node*> originals;
    for (const Node* node : fresh)
      if (!node->variable().copy_of) originals.push_back(node);
    const std::vector<Tensor> values = first_values(originals);
    for (std::size_t i = 0; i < originals.size(); ++i) copy_into(*originals[i], values[i].raw());
    for (const Node* node : fresh)
      if (Node* original = node->variable().copy_of)
        copy_into(*node, ensure(Variable(*original)).memory.data());
  }

  // Those of copies are their originals'.
  std::vector<Tensor> first_values(std::span<const Node* const> nodes) {
    if (nodes.empty()) return {};
    std::vector<Fetch> initials;
    for (const Node* node : nodes) {
      while (node->variable().copy_of) node = node->variable().copy_of;
      initials.emplace_back(node->variable().initial);
    }
    const auto step = build(initials, {}, false);
    step->initial = true;
    step->run({});
    return step->fetched;
  }

  void copy_into(const Node& variable, const std::byte* value) {
    const Buffer& memory = stored(variable).memory;
    std::memcpy(memory.data(), value, memory.bytes());
  }

  // Memory of a variable that no plan may have touched yet.
  Stored& ensure(Variable variable) {
    const Node& node = variable.node();
    require(&node.graph() == &graph, node.describe(), ": belongs to another graph");
    if (options.dry_run) {
      const Fetch itself(variable.node());
      refuse_dry_run(compile({&itself, 1}, {}, context(false)), devices);
    }
    if (!variables.contains(&node)) {
      const Fetch itself(variable.node());
      initialise(compile({&itself, 1}, {}, context(false)));
    }
    return stored(node);
  }

  // At once, as a plan for each would take long.
  void ensure_all(std::span<const VariableBytes> values) {
    if (options.dry_run && !values.empty()) ensure(values.front().variable);  // throws
    std::vector<Fetch> missing;
    for (const auto& [variable, bytes] : values)
      if (&variable.node().graph() == &graph && !variables.contains(&variable.node()))
        missing.emplace_back(variable.node());
    if (!missing.empty()) initialise(compile(missing, {}, context(false)));
  }

  static std::string key(std::span<const Fetch> fetches, std::span<const FeedType> feeds) {
    std::string text;
    for (const Fetch& fetch : fetches)
      text += cat(fetch.node->id(), ":", fetch.output ? fetch.output.index() : -1, " ");
    for (const FeedType& feed : feeds)
      text += cat(feed.where.node().id(), ":", feed.where.index(), feed.shape, " ");
    return text;
  }

  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  int threads;  // asked for
  WorkerPool pool;
  Runner runner;
  std::map<const Node*, Stored> variables;
  std::map<std::string, Prepared> steps;
  int plans = 0;     // asked for so far
  std::mutex mutex;  // over variables and steps
};

Session::Session(const Graph& graph, SessionOptions options)
    : state_(std::make_unique<State>(graph, std::move(options))) {}

Session::~Session() = default;

Step& Session::prepare(std::span<const Fetch> fetches, std::span<const FeedType> feeds) {
  const std::lock_guard lock(state_->mutex);
  const std::string key = State::key(fetches, feeds);
  auto& [made_of, fed, number, step] = state_->steps[key];
  if (step) return *step;
  try {
    made_of.assign(fetches.begin(), fetches.end());
    fed.assign(feeds.begin(), feeds.end());
    number = ++state_->plans;
    auto built = state_->build(fetches, feeds, state_->options.log_device_placement);
    step.reset(new Step(std::move(built)));
  } catch (...) {
    state_->steps.erase(key);
    throw;
  }
  return *step;
}

std::vector<Tensor> Session::run(std::span<const Fetch> fetches, std::span<const Feed> feeds,
                                 RunOptions options) {
  if (options.trace) *options.trace = Trace();
  std::vector<FeedType> types;
  std::vector<Tensor> values;
  for (const Feed& feed : feeds) {
    types.push_back({feed.where, feed.what.shape()});
    values.push_back(feed.what);
  }
  std::vector<Tensor> results;
  prepare(fetches, types).state_->run(values, options, &results);
  return results;
}

std::vector<Tensor> Session::run(std::initializer_list<Fetch> fetches,
                                 std::initializer_list<Feed> feeds, RunOptions options) {
  return run(std::span(fetches.begin(), fetches.size()), std::span(feeds.begin(), feeds.size()),
             options);
}

Tensor Session::run(Output fetch, std::span<const Feed> feeds) {
  const Fetch wanted(fetch);
  return run({&wanted, 1}, feeds).front();
}

Tensor Session::read(Variable variable) {
  const std::lock_guard lock(state_->mutex);
  const State::Stored& stored = state_->ensure(variable);
  const std::lock_guard no_run(state_->runner.mutex);
  Tensor value(variable.shape(), variable.dtype());
  std::memcpy(value.mutable_raw(), stored.memory.data(), stored.memory.bytes());
  return value;
}

void Session::write(Variable variable, const Tensor& value) {
  require(value.shape() == variable.shape() && value.dtype() == variable.dtype(),
          variable.node().describe(), ": is ", variable.node().output_type(0),
          ", but was written with ", name_of(value.dtype()), value.shape());
  const std::lock_guard lock(state_->mutex);
  const State::Stored& stored = state_->ensure(variable);
  const std::lock_guard no_run(state_->runner.mutex);
  std::memcpy(stored.memory.data(), value.raw(), stored.memory.bytes());
  state_->runner.suspects.erase(&variable.node());
}

bool Session::intact() const {
  const std::lock_guard no_run(state_->runner.mutex);
  return state_->runner.suspects.empty();
}

void Session::restore(std::span<const VariableBytes> values, std::uint64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->ensure_all(values);
  std::map<const Node*, std::span<const std::byte>> all;
  for (const auto& [variable, bytes] : values) {
    const std::size_t wanted = state_->ensure(variable).memory.bytes();
    require(bytes.size() == wanted, variable.node().describe(), ": has ", wanted,
            " bytes, but would be restored from ", bytes.size());
    all.emplace(&variable.node(), bytes);
  }
  std::vector<const Node*> lost;
  {
    const std::lock_guard no_run(state_->runner.mutex);
    for (const Node* node : state_->runner.suspects)
      if (!all.contains(node)) lost.push_back(node);
  }
  const std::vector<Tensor> first = state_->first_values(lost);
  for (std::size_t i = 0; i < lost.size(); ++i)
    all.emplace(lost[i], std::span(first[i].raw(), first[i].bytes()));
  const std::lock_guard no_run(state_->runner.mutex);
  for (const auto& [node, bytes] : all)
    std::ranges::copy(bytes, state_->stored(*node).memory.data());
  state_->runner.suspects.clear();
  state_->runner.step = step;
}

const Graph& Session::graph() const { return state_->graph; }

namespace {

// The plan node that computes `node`, or null.
const PlanNode* find_planned(const Plan& plan, const Node& node) {
  for (const PlanNode& planned : plan.nodes)
    if (planned.node == &node && planned.op == &node.op()) return &planned;
  return nullptr;
}

}  // namespace

DeviceSpec Session::placement(Output output) {
  const auto find = [&](const Plan& plan) -> const DeviceSpec* {
    const PlanNode* planned = find_planned(plan, output.node());
    if (!planned) return nullptr;
    const int device = planned->devices[static_cast<std::size_t>(output.index())];
    return &state_->devices[static_cast<std::size_t>(device)]->spec;
  };
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto found = state_->variables.find(&output.node()); found != state_->variables.end())
      return state_->devices[static_cast<std::size_t>(found->second.device)]->spec;
    for (const auto& [key, prepared] : state_->steps)
      if (const DeviceSpec* spec = find(prepared.step->plan())) return *spec;
  }
  const DeviceSpec* spec = find(prepare({Fetch(output.node())}).plan());
  require<Internal>(spec != nullptr, output.node().describe(), " is not in its own plan");
  return *spec;
}

Explanation Session::explain(const Output& output) {
  const std::lock_guard lock(state_->mutex);
  require(&output.graph() == &state_->graph, output.node().describe(),
          ": belongs to another graph than the session's");
  for (const auto& [key, prepared] : state_->steps)
    if (find_planned(prepared.step->plan(), output.node()))
      return explain_placement(output, prepared.fetches, prepared.feeds,
                               state_->context(false, prepared.number));
  return explain_placement(output, {}, {}, state_->context(false));
}

std::vector<DeviceSpec> Session::devices() const {
  std::vector<DeviceSpec> specs;
  for (const auto& device : state_->devices) specs.push_back(device->spec);
  return specs;
}

std::vector<DeviceUse> Session::device_use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->device_use();
}

std::map<std::string, std::int64_t> Session::peak_bytes() const {
  std::map<std::string, std::int64_t> peaks;
  for (const DeviceUse& use : device_use()) peaks[use.device.str()] = use.peak_bytes;
  return peaks;
}

std::string DeviceUse::str() const {
  return cat(device, ": ", variables, variables == 1 ? " variable, " : " variables, ",
             variable_bytes, " bytes, planned peak ", peak_bytes, " bytes",
             declared ? " without the workspaces of libraries" : "");
}

int Session::threads() const { return state_->threads; }

std::uint64_t Session::step() const {
  const std::lock_guard no_run(state_->runner.mutex);
  return state_->runner.step;
}

void Session::set_step(std::uint64_t step) {
  const std::lock_guard no_run(state_->runner.mutex);
  state_->runner.step = step;
}

}  // namespace belfry
