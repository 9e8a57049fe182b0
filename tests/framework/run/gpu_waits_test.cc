// Every wait of a plan on GPUs is needed, and takes place. Without it a launch runs before the one
// that it must wait for.
#include <condition_variable>
#include <mutex>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace gpu_waits_test {

// Holds up one launch until another has begun, or for a while.
class Hold {
 public:
  Hold(int held, int other, std::chrono::milliseconds patience)
      : held_(held), other_(other), patience_(patience) {}

  void begin(int launch) {
    std::unique_lock lock(mutex_);
    if (launch == other_) {
      began_ = true;
      too_early_ = too_early_ || !done_;
      changed_.notify_all();
    }
    if (launch == held_) changed_.wait_for(lock, patience_, [&] { return began_; });
  }
  void end(int launch) {
    const std::lock_guard lock(mutex_);
    done_ = done_ || launch == held_;
  }
  bool too_early() const {
    const std::lock_guard lock(mutex_);
    return too_early_;
  }

 private:
  int held_, other_;
  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool began_ = false, done_ = false, too_early_ = false;
};

// Tells `hold` when launches begin and end. Launches of GPUs tell from their streams.
void observe(Plan& plan, Hold& hold) {
  for (std::size_t i = 0; i < plan.launches.size(); ++i) {
    Launch& launch = plan.launches[i];
    const int l = static_cast<int>(i);
    if (launch.run)
      launch.run = [&hold, l, run = launch.run](const KernelPointers& p) {
        hold.begin(l);
        run(p);
        hold.end(l);
      };
    else
      launch.enqueue = [&hold, l, run = launch.enqueue](const KernelPointers& p,
                                                        GpuStream& stream) {
        test::StandInGpus::enqueue(stream, [&hold, l] { hold.begin(l); });
        run(p, stream);
        test::StandInGpus::enqueue(stream, [&hold, l] { hold.end(l); });
      };
  }
}

struct Place {
  std::size_t launch, wait;
};

struct Case {
  Layout layout;
  bool nccl = false;
};

class GpuWaits {
 public:
  explicit GpuWaits(Case c)
      : layout_(c.layout),
        gpus_(layout_.physical),
        use_(gpus_),
        model_("GPU", layout_.devices(), c.nccl) {
    Session session(model_.graph, on_gpus(layout_));
    const Plan& plan = *session.prepare(model_.fetches(), model_.feed_types()).plan();
    for (std::size_t l = 0; l < plan.launches.size(); ++l)
      for (std::size_t w = 0; w < plan.launches[l].waits.size(); ++w)
        if (on_gpu(plan, plan.launches[l].strand) || on_gpu(plan, plan.launches[l].waits[w].strand))
          (implied(plan, l, w) ? implied_ : needed_).push_back({l, w});
    for (const Place place : needed_) {
      const Launch& launch = plan.launches[place.launch];
      if (!on_gpu(plan, launch.strand) && !plan.node(launch.node).inputs.empty())
        of_hosts_.push_back(place.launch);
    }
  }

  const std::vector<Place>& needed() const { return needed_; }
  const std::vector<Place>& implied() const { return implied_; }

  // Whether a host uses memory that a GPU still works with, once hosts do not wait for GPUs. It
  // looks at the first of these launches, as later ones may come late enough.
  bool races_without_waits_of_hosts() {
    gpus_.slow_down(std::chrono::milliseconds(1));
    SessionOptions options = on_gpus(layout_);
    options.plan_hook = [&](Plan& plan) {
      if (plan.feeds.empty()) return;  // the step makes first values
      for (Launch& launch : plan.launches)
        if (!on_gpu(plan, launch.strand))
          std::erase_if(launch.waits, [&](const Wait& wait) { return on_gpu(plan, wait.strand); });
      watch_host(plan, plan.launches[of_hosts_.at(0)], gpus_, std::chrono::milliseconds(500));
    };
    Session session(model_.graph, options);
    try {
      session.prepare(model_.fetches(), model_.feed_types()).run(model_.feeds(0));
    } catch (const DeviceError& error) {
      return std::string_view(error.what()).ends_with("nothing orders them");
    }
    return false;
  }

  // Whether the launch at `place` can run before the one that it waits for, with the wait or
  // without.
  bool runs_too_early(Place place, bool without, std::chrono::milliseconds patience) {
    std::unique_ptr<Hold> hold;
    SessionOptions options = on_gpus(layout_);
    options.plan_hook = [&](Plan& plan) {
      if (plan.feeds.empty()) return;  // the step makes first values
      std::vector<Wait>& waits = plan.launches[place.launch].waits;
      const Wait wait = waits[place.wait];
      hold = std::make_unique<Hold>(plan.awaited(wait).value(), static_cast<int>(place.launch),
                                    patience);
      if (without) waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(place.wait));
      observe(plan, *hold);
    };
    Session session(model_.graph, options);
    try {
      session.prepare(model_.fetches(), model_.feed_types()).run(model_.feeds(0));
    } catch (const DeviceError&) {
      if (!without) throw;
      return true;  // the GPUs have noticed the race
    }
    return hold->too_early();
  }

 private:
  static bool on_gpu(const Plan& plan, StrandIndex strand) { return plan.on_gpu(strand); }

  // Whether the launch needs no such wait. The host does one thing after another, so its worker may
  // already wait for something earlier, until the awaited launch has finished.
  static bool implied(const Plan& plan, std::size_t launch, std::size_t wait) {
    const Indexed<Strand, int> worker_of = deal_strands(plan, 1);
    const Launch& waits = plan.launches[launch];
    const Wait wanted = waits.waits[wait];
    const auto covers = [&](LaunchIndex other) {
      const Launch& done = plan.launches[other];
      return (done.strand == wanted.strand && done.position >= wanted.position) ||
             plan.have_run(wanted.strand, other) > wanted.position;
    };
    for (std::size_t l = 0; l < launch; ++l) {
      const Launch& before = plan.launches[l];
      if (worker_of[before.strand] != worker_of[waits.strand]) continue;
      if (!on_gpu(plan, before.strand) && covers(LaunchIndex(l))) return true;
      for (const Wait& awaited : before.waits)
        if (!on_gpu(plan, awaited.strand) && covers(plan.awaited(awaited))) return true;
    }
    return false;
  }

  Layout layout_;
  test::StandInGpus gpus_;
  test::UseGpus use_;
  Towers model_;
  std::vector<Place> needed_, implied_;
  std::vector<std::size_t> of_hosts_;  // launches of hosts that wait for a GPU to use memory
};

class GpuWaitsTest : public ::testing::TestWithParam<Case> {};

TEST_P(GpuWaitsTest, AreAllWaitedFor) {
  GpuWaits waits(GetParam());
  ASSERT_GE(waits.needed().size(), 3u);
  for (const std::vector<Place>& places : {waits.needed(), waits.implied()})
    for (const Place place : places)
      EXPECT_FALSE(waits.runs_too_early(place, false, std::chrono::milliseconds(10)))
          << "launch " << place.launch << ", wait " << place.wait;
}

TEST_P(GpuWaitsTest, AreAllNeeded) {
  if (kSanitized) GTEST_SKIP() << "what a wait was taken from is a race, and may use dead memory";
  GpuWaits waits(GetParam());
  EXPECT_LT(waits.implied().size(), waits.needed().size());
  for (const Place place : waits.needed())
    EXPECT_TRUE(waits.runs_too_early(place, true, std::chrono::seconds(10)))
        << "launch " << place.launch << ", wait " << place.wait;
}

TEST_P(GpuWaitsTest, OfHostsKeepThemFromMemoryThatGpusUse) {
  if (kSanitized) GTEST_SKIP() << "what a wait was taken from is a race, and may use dead memory";
  EXPECT_TRUE(GpuWaits(GetParam()).races_without_waits_of_hosts());
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuWaitsTest,
                         ::testing::Values(Case{{1, 1}}, Case{{1, 2}}, Case{{2, 1}}, Case{{2, 2}},
                                           Case{{1, 8}}, Case{{8, 1}}, Case{{2, 4}},
                                           Case{{2, 1}, true}, Case{{2, 2}, true}),
                         [](const auto& test) {
                           return cat(test.param.layout.physical, "x", test.param.layout.logical,
                                      test.param.nccl ? "nccl" : "");
                         });

}  // namespace gpu_waits_test
}  // namespace belfry
