#include "belfry/framework/run/step_activity.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/describe_with_forward.h"
#include "belfry/framework/run/cpu_executor.h"
#include "belfry/framework/run/gpu_executor.h"
#include "belfry/framework/run/linked_plan.h"

namespace belfry {

// Collects sentences about the threads of a run; those about running launches come first.
class StepActivity::Text {
 public:
  Text(const StepActivity& of, Clock::time_point now)
      : linked_(of.linked_), plan_(*of.linked_.plan), of_(of), now_(now) {}

  ErrorOrigin run() {
    for (std::size_t r = 0; r < linked_.routes.size(); ++r) look_for_launch(r);
    for (std::size_t r = 0; r < linked_.routes.size(); ++r) look_for_wait(r);
    for (int t = linked_.workers; t < linked_.threads(); ++t) look_at_program(t);
    for (const auto& [launch, since] : computing_)
      add(first_,
          cat(device_of(launch), " has computed ", describe_with_forward(linked_.node_of(launch)),
              " for ", seconds_text(since, now_)));
    constexpr std::size_t kMost = 8;
    if (waiting_.size() > kMost) {
      const std::size_t more = waiting_.size() - kMost;
      waiting_.resize(kMost);
      waiting_.push_back(cat("so do ", more, " more"));
    }
    for (const std::string& wait : waiting_) add(first_, wait);
    ErrorOrigin told{.what = join(first_, "; ")};
    if (computing_.empty()) return told;
    const LaunchIndex first = computing_.begin()->first;
    told.op = linked_.node_of(first).name();
    told.device = of_.devices_[at(plan_.strands[plan_.launches[first].strand].device)]->spec.str();
    return told;
  }

 private:
  // Adds a text once: shards of a device often do the same.
  static void add(std::vector<std::string>& list, std::string text) {
    if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
  }

  std::string device_of(StrandIndex strand) const {
    return lower(of_.devices_[at(plan_.strands[strand].device)]->spec.short_str());
  }
  std::string device_of(LaunchIndex launch) const {
    return device_of(plan_.launches[launch].strand);
  }
  std::string name_of(LaunchIndex launch) const {
    return cat("'", plan_.node(plan_.launches[launch].node).name(), "'");
  }

  void look_for_launch(std::size_t route) {
    const auto [command, is_followed] = of_.cpus_.place(route);
    if (!command || command->kind != Command::Kind::kLaunch || !is_followed) return;
    const Clock::time_point since = of_.routes_[route].at();
    const auto [known, is_new] = computing_.try_emplace(command->launch, since);
    if (!is_new) known->second = std::min(known->second, since);
    if (linked_.workers == 1) look_behind(route, command);
  }

  // A single worker has the strands of several devices in one list.
  void look_behind(std::size_t route, const Command* from) {
    std::vector<int> seen{plan_.strands[plan_.launches[from->launch].strand].device};
    const std::vector<Command>& commands = linked_.routes[route].commands;
    for (const Command* c = from; c != commands.data() + commands.size(); ++c) {
      const StrandIndex strand = plan_.launches[c->launch].strand;
      const int device = plan_.strands[strand].device;
      if (c->kind != Command::Kind::kLaunch || std::ranges::find(seen, device) != seen.end())
        continue;
      seen.push_back(device);
      wait_for_thread(c->launch);
    }
  }

  void look_for_wait(std::size_t route) {
    const auto [command, is_followed] = of_.cpus_.place(route);
    if (!command || is_followed) return;
    const bool waits =
        command->kind == Command::Kind::kWait || command->kind == Command::Kind::kWaitStamp;
    if (!waits && command->kind != Command::Kind::kLaunch) return;
    const Wait wait{command->strand, command->position};
    if (waits && is_awaited(wait))
      wait_for(device_of(command->launch), plan_.awaited(wait), command->launch);
    else
      wait_for_thread(command->launch);
  }

  // Whether the launch has not run yet. Strands that no worker follows give no answer.
  bool is_awaited(const Wait& wait) const {
    bool has_route = false;
    for (std::size_t r = 0; r < linked_.routes.size(); ++r) {
      const std::vector<Command>& commands = linked_.routes[r].commands;
      if (commands.empty() || plan_.launches[commands[0].launch].strand != wait.strand) continue;
      has_route = true;
      const Command* const next = of_.cpus_.place(r).command;
      if (next && plan_.launches[next->launch].position <= wait.position) return true;
    }
    return !has_route;
  }

  void wait_for(const std::string& who, LaunchIndex awaited, LaunchIndex launch) {
    const bool is_told = computing_.size() == 1 && computing_.contains(awaited);
    add(waiting_,
        cat(who, " waits for ",
            is_told ? std::string("it") : cat(name_of(awaited), " of ", device_of(awaited)), " at ",
            name_of(launch)));
  }

  void wait_for_thread(LaunchIndex launch) {
    add(waiting_, cat(device_of(launch), " waits for a thread at ", name_of(launch)));
  }

  // The thread of a GPU. Its last commands wait for what it has enqueued.
  void look_at_program(int thread) {
    const Command* const command = of_.gpus_->place(thread);
    if (!command) return;
    const std::string who = device_of(command->launch);
    if (command->kind == Command::Kind::kWait)
      wait_for(who, plan_.awaited({command->strand, command->position}), command->launch);
    else if (command->kind == Command::Kind::kWaitStamp)
      add(first_,
          cat(device_of(command->strand), " has not finished ",
              linked_.node_of(plan_.awaited({command->strand, command->position})).describe()));
    else
      add(first_, cat("the thread of ", who, " has enqueued ", name_of(command->launch), " for ",
                      seconds_text(of_.programs_[at(thread - linked_.workers)].at(), now_)));
  }

  const LinkedPlan& linked_;
  const Plan& plan_;
  const StepActivity& of_;
  const Clock::time_point now_;
  std::map<LaunchIndex, Clock::time_point> computing_;
  std::vector<std::string> first_, waiting_;
};

StepActivity::StepActivity(const LinkedPlan& linked, const CpuExecutor& cpus,
                           const GpuExecutor* gpus,
                           const std::vector<std::unique_ptr<Device>>& devices)
    : linked_(linked),
      cpus_(cpus),
      gpus_(gpus),
      devices_(devices),
      routes_(linked.routes.size()),
      programs_(linked.programs.size()) {}

std::optional<Activity::Clock::time_point> StepActivity::stuck_since(Clock::time_point now) {
  const std::uint64_t turns = turns_.load(std::memory_order_acquire);
  if (turns % 2 == 0) return std::nullopt;
  // A position in another run is a different position.
  const auto count = [&](const Command* command, bool is_followed) {
    return (turns << 48) ^ (reinterpret_cast<std::uintptr_t>(command) * 2 + is_followed);
  };
  Clock::time_point last = parts_.look(count(nullptr, false) + at(cpus_.parts_done()), now);
  for (std::size_t r = 0; r < routes_.size(); ++r) {
    const auto [command, is_followed] = cpus_.place(r);
    last = std::max(last, routes_[r].look(count(command, is_followed), now));
  }
  for (std::size_t t = 0; t < programs_.size(); ++t)
    last = std::max(
        last,
        programs_[t].look(count(gpus_->place(linked_.workers + static_cast<int>(t)), false), now));
  return last;
}

ErrorOrigin StepActivity::describe(Clock::time_point now) const { return Text(*this, now).run(); }

}  // namespace belfry
