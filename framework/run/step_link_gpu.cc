// How a plan's work for GPUs is linked: what each launch or segment waits for in its stream, and
// what it leaves there for others.
#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

#include "belfry/framework/base/sort_unique_impl.h"
#include "belfry/framework/plan/rank_launch.h"
#include "belfry/framework/run/step.h"

namespace belfry {
namespace {

// Keeps one wait per lane, the latest.
void add_wait(std::vector<Wait>& waits, const Wait& wait) {
  const auto same = std::ranges::find(waits, wait.lane, &Wait::lane);
  if (same == waits.end())
    waits.push_back(wait);
  else
    same->position = std::max(same->position, wait.position);
}

// Streams are told apart by their lanes. A vector clock per stream says which task of each other
// stream it is behind; -1: none. Behind these it has 0 for each GPU whose copies of feeds it is
// behind, else -1.
class GpuLinker {
 public:
  GpuLinker(const Plan& plan, const std::function<std::unique_ptr<GpuEvent>(int lane)>& make_event)
      : plan_(plan),
        make_event_(make_event),
        fed_(fed_gpus(plan)),
        stamped_(plan.launches.size()),
        stepped_(plan.lanes.size()),
        known_(plan.lanes.size(), std::vector<int>(plan.lanes.size() + fed_.size(), -1)) {
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      const Launch& launch = plan.launches[l];
      if (launch.rank) stamped_[l] = true;  // to know which one does not finish
      for (const Wait& wait : launch.waits)
        if (!on_gpu(launch.lane)) stamped_[at(awaited(plan, wait))] = true;
    }
    for (const Lane& lane : plan.lanes) stamped_[at(lane.launches.back())] = true;
    all_.of.assign(plan.launches.size(), -1);
    all_.lists.resize(gpus_of(plan).size());
  }

  GpuTasks link(const std::vector<Segment>& segments) {
    const std::vector<int> gpus = gpus_of(plan_);
    for (const Segment& segment : segments) {
      const int number = static_cast<int>(all_.tasks.size());
      all_.lists[at(std::ranges::lower_bound(gpus, segment.gpu) - gpus.begin())].push_back(number);
      for (const int launch : segment.launches) all_.of[at(launch)] = number;
      all_.tasks.push_back({.launches = segment.launches, .lane = segment.lane});
      add_waits(number);
      add_stamps(number);
    }
    return std::move(all_);
  }

 private:
  bool on_gpu(int lane) const { return plan_.lanes[at(lane)].gpu >= 0; }
  GpuTask& task(int number) { return all_.tasks[at(number)]; }

  void add_waits(int number) {
    std::vector<int> before;
    for (const int l : task(number).launches) {
      const Launch& launch = plan_.launches[at(l)];
      const PlanNode& node = plan_.node(launch.node);
      task(number).writes |= node.writes() > 0;
      if (node.op->random && !std::exchange(stepped_[at(launch.lane)], true))
        task(number).steps.push_back(launch.lane);
      for (const Wait& wait : launch.waits) add_wait_of(number, wait, before);
      if (launch.position > 0)
        before.push_back(all_.of[at(awaited(plan_, {launch.lane, launch.position - 1}))]);
    }
    std::erase(before, number);
    sort_unique(before);
    // The latest first: being behind them is being behind what they are behind.
    std::vector<int>& clock = known_[at(task(number).lane)];
    for (const int earlier : before | std::views::reverse) {
      if (clock[at(task(earlier).lane)] >= earlier) continue;
      task(number).after.push_back(earlier);
      leave_event(earlier);
      come_behind(clock, earlier);
    }
    await_feeds(number, clock);
    clock[at(task(number).lane)] = number;
    clocks_.push_back(clock);
  }

  void await_feeds(int number, std::vector<int>& clock) {
    for (const int l : task(number).launches)
      for (const Value& input : plan_.node(plan_.launches[at(l)].node).inputs) {
        const BufferRecord& record = plan_.buffers[at(plan_.buffer(input))];
        const auto slots = std::ranges::find(plan_.feed_slots, record.device, &FeedSlots::device);
        if (record.place != Place::kFeed || slots == plan_.feed_slots.end()) continue;
        const auto gpu = std::ranges::lower_bound(fed_, slots->gpu) - fed_.begin();
        if (std::exchange(clock[plan_.lanes.size() + at(gpu)], 0) < 0)
          task(number).fed.push_back(static_cast<int>(gpu));
      }
  }

  void add_wait_of(int number, const Wait& wait, std::vector<int>& before) {
    if (!on_gpu(wait.lane)) return add_wait(task(number).waits, wait);
    const int earlier = all_.of[at(awaited(plan_, wait))];
    before.push_back(earlier);
    if (plan_.lanes[at(wait.lane)].gpu == plan_.lanes[at(task(number).lane)].gpu) return;
    // Its thread must have recorded the event.
    add_wait(task(number).waits, wait);
    add_wait(task(earlier).signals, wait);
  }

  void leave_event(int number) {
    if (!task(number).event) task(number).event = make_event_(task(number).lane);
  }

  void come_behind(std::vector<int>& clock, int number) const {
    for (std::size_t lane = 0; lane < clock.size(); ++lane)
      clock[lane] = std::max(clock[lane], clocks_[at(number)][lane]);
  }

  // A lane is stamped in its own stream, which tells of its faults.
  void add_stamps(int number) {
    for (const int l : task(number).launches)
      if (stamped_[at(l)]) add_wait(task(number).stamps, {plan_.launches[at(l)].lane, -1});
    for (const int l : task(number).launches) {
      const Launch& launch = plan_.launches[at(l)];
      const auto stamp = std::ranges::find(task(number).stamps, launch.lane, &Wait::lane);
      if (stamp != task(number).stamps.end()) stamp->position = launch.position;
    }
    for (const Wait& stamp : task(number).stamps) {
      if (stamp.lane == task(number).lane) continue;
      leave_event(number);
      come_behind(known_[at(stamp.lane)], number);
    }
  }

  const Plan& plan_;
  const std::function<std::unique_ptr<GpuEvent>(int lane)>& make_event_;
  const std::vector<int> fed_;            // fed_gpus()
  std::vector<char> stamped_;             // by launch: the host waits for it
  std::vector<char> stepped_;             // by lane: its kernels know the step
  std::vector<std::vector<int>> known_;   // by stream
  std::vector<std::vector<int>> clocks_;  // by task
  GpuTasks all_;
};

}  // namespace

void Step::State::link_gpus() {
  gpu_lanes.resize(plan.lanes.size());
  if (gpus_of(plan).empty()) return;
  constexpr std::size_t kLine = 64;
  counters = Buffer(runner.gpus->counters(), kLine * plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const Lane& lane = plan.lanes[l];
    if (lane.gpu < 0) continue;
    require(!shares(), "a step of Locks::kEachVariable has work on ",
            runner.devices[at(lane.device)]->spec, ", but runs on CPUs alone");
    std::byte* const counter = counters.data() + kLine * l;
    gpu_lanes[l] = {&runner.gpus->of(lane.device, lane.communicates),
                    Stamp(*reinterpret_cast<std::int64_t*>(counter))};
  }
  for (const Launch& launch : plan.launches)
    if (GpuStream* const stream = gpu_lanes[at(launch.lane)].stream)
      stream->get_ready(launch.rank ? launch.rank->sum() : launch.enqueue);
}

void Step::State::link_gpu_tasks(std::span<const int> worker_of) {
  gpu_tasks = make_gpu_tasks(single_launches(plan));
  for (const GpuTask& task : gpu_tasks.tasks)
    for (const Wait& wait : task.waits)
      if (plan.lanes[at(wait.lane)].gpu < 0) tasks[at(awaited(plan, wait))].signals = true;
  if (!runner.capture) return;
  const std::vector<Segment> segments = cut_segments(plan, worker_of);
  if (std::ranges::any_of(segments, &Segment::captured)) gpu_segments = make_gpu_tasks(segments);
}

GpuTasks Step::State::make_gpu_tasks(const std::vector<Segment>& segments) {
  return GpuLinker(plan,
                   [this](int lane) {
                     const Device& device = *runner.devices[at(plan.lanes[at(lane)].device)];
                     return device.backend->make_event(device.gpu);
                   })
      .link(segments);
}

}  // namespace belfry
