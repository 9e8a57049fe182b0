// How a session compiles and makes steps.
#include <new>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {

std::shared_ptr<Step> Session::State::step_for(std::span<const Fetch> fetches,
                                               std::span<const FeedType> feeds, Locks locks,
                                               bool held) {
  if (std::shared_ptr<Step> kept = steps.find(fetches, feeds, locks, held)) return kept;
  if (!held) steps.make_room();
  std::unique_ptr<Step::State> built =
      build(fetches, feeds, {.log_placement = options.log_device_placement, .locks = locks});
  built->connect();
  std::shared_ptr<Step> step(new Step(std::move(built)));
  steps.add(fetches, feeds, locks, held, step);
  use.note_peak();
  return step;
}

std::unique_ptr<Step::State> Session::State::build(std::span<const Fetch> fetches,
                                                   std::span<const FeedType> feeds,
                                                   const BuildOptions& how) {
  for (const Fetch& fetch : fetches) require_own(*fetch.node);
  try {
    Plan plan = compile_plan(fetches, feeds, how.locks);
    if (how.log_placement) print_placement(plan);
    if (log_enabled(LogLevel::kDebug)) log_debug(plan.str(devices));
    if (options.plan_hook) {
      options.plan_hook(plan);
      plan.commands = issue(plan, options.capture);  // of the launches as they are now
    }
    make_room(plan, how.kept);
    initialise(plan);
    return std::make_unique<Step::State>(std::move(plan), how.runtime ? *how.runtime : runtime,
                                         how.into);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(fetches.empty() ? "a step" : fetches[0].node->describe(),
                          ": there was no memory left to compile the step that computes it; use ",
                          options.shards_per_device > 1
                              ? "fewer shards (the option shards_per_device), a smaller batch "
                                "or fewer devices"
                              : "fewer devices",
                          ", or allow this process more memory (ulimit -v)"));
  }
}

Plan Session::State::compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                                  Locks locks) {
  for (;;) {
    PlanContext compiling = context();
    compiling.locks = locks;
    Plan plan = compile(fetches, feeds, compiling);
    if (plan.unshare.empty()) return plan;
    for (const Node* variable : plan.unshare) unshare(*variable);
  }
}

// By the plan, before anything is allocated.
void Session::State::make_room(const Plan& plan, bool kept) {
  for (;;) {
    const std::string text = use.lacking(plan, kept);
    if (text.empty()) return;
    // A run that uses a step ends without this thread's help.
    if (!steps.drop_idle() && !steps.await_idle()) throw OutOfMemory(text);
  }
}

}  // namespace belfry
