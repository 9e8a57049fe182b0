#include "belfry/framework/run/segments.h"

#include <algorithm>
#include <map>

#include "belfry/framework/core_ops/copy.h"

namespace belfry {
namespace {

// Why waits never form a circle: let a launch of a host have its own place in the global order, a
// segment that of its first launch. Who waits, waits for earlier places, as only the first launch
// of a segment waits for another GPU or for what is not captured; the other waits of a segment are
// for hosts that wait for no GPU.
class Cutter {
 public:
  Cutter(const Plan& plan, std::span<const int> worker_of)
      : plan_(plan),
        worker_of_(worker_of),
        free_(plan.launches.size()),
        ends_(plan.launches.size()) {}

  std::vector<Segment> run() {
    find_ends();
    for (std::size_t l = 0; l < plan_.launches.size(); ++l) {
      if (gpu_of(static_cast<int>(l)) < 0)
        pass_host(static_cast<int>(l));
      else
        add(static_cast<int>(l));
    }
    give_lanes();
    return std::move(segments_);
  }

 private:
  struct Open {
    std::size_t segment = 0;
    bool closed = true;   // nothing more goes in
    bool awaited = true;  // by a host
  };

  const Launch& launch(int l) const { return plan_.launches[at(l)]; }
  int gpu_of(int l) const { return plan_.lanes[at(launch(l).lane)].gpu; }

  // Behind launches that others than hosts and captured ones of the same GPU wait for.
  void find_ends() {
    for (std::size_t l = 0; l < plan_.launches.size(); ++l) {
      const int gpu = gpu_of(static_cast<int>(l));
      for (const Wait& wait : plan_.launches[l].waits)
        if (gpu >= 0 && (gpu_of(awaited(plan_, wait)) != gpu || !plan_.launches[l].captured))
          ends_[at(awaited(plan_, wait))] = true;
    }
  }

  void pass_host(int l) {
    char& waits = waits_for_gpu_[worker_of_[at(launch(l).lane)]];
    for (const Wait& wait : launch(l).waits) {
      const int before = awaited(plan_, wait);
      const int gpu = gpu_of(before);
      waits |= static_cast<char>(gpu >= 0 || !free_[at(before)]);
      if (gpu < 0 || plan_.node(launch(l).node).fetch >= 0) continue;
      Open& open = open_[gpu];
      if (std::ranges::binary_search(segments_[open.segment].launches, before)) open.awaited = true;
    }
    free_[at(l)] = !waits;
  }

  void add(int l) {
    const int gpu = gpu_of(l);
    Open& open = open_[gpu];
    if (open.closed || (open.awaited && !copies_to_host(l)) || !launch(l).captured ||
        waits_outside(l)) {
      open = {.segment = segments_.size(), .closed = false, .awaited = false};
      segments_.push_back({gpu, launch(l).lane, {}});
    }
    segments_[open.segment].launches.push_back(l);
    open.closed = ends_[at(l)] || !launch(l).captured;
  }

  bool waits_outside(int l) const {
    return std::ranges::any_of(launch(l).waits, [&](const Wait& wait) {
      const int before = awaited(plan_, wait);
      const int gpu = gpu_of(before);
      if (gpu < 0) return !free_[at(before)];
      return gpu != gpu_of(l) || !launch(before).captured;
    });
  }

  // Copies to other GPUs are on the lanes of these.
  bool copies_to_host(int l) const {
    const PlanNode& node = plan_.node(launch(l).node);
    return node.op == &kCopy && node.device() != plan_.lanes[at(launch(l).lane)].device;
  }

  // Those of a GPU that are captured are enqueued in one stream.
  void give_lanes() {
    std::map<int, int> lane_of;
    for (Segment& segment : segments_)
      if (segment.captured())
        segment.lane = lane_of.emplace(segment.gpu, segment.lane).first->second;
  }

  const Plan& plan_;
  std::span<const int> worker_of_;
  std::vector<char> free_;             // of a host: neither it nor what it waits for waits for GPUs
  std::vector<char> ends_;             // by launch
  std::map<int, char> waits_for_gpu_;  // by worker
  std::map<int, Open> open_;           // by GPU
  std::vector<Segment> segments_;
};

}  // namespace

int awaited(const Plan& plan, const Wait& wait) {
  return plan.lanes[at(wait.lane)].launches[at(wait.position)];
}

std::vector<Segment> cut_segments(const Plan& plan, std::span<const int> worker_of) {
  return Cutter(plan, worker_of).run();
}

std::vector<Segment> single_launches(const Plan& plan) {
  std::vector<Segment> all;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const int lane = plan.launches[l].lane;
    if (plan.lanes[at(lane)].gpu >= 0)
      all.push_back({plan.lanes[at(lane)].gpu, lane, {static_cast<int>(l)}});
  }
  return all;
}

}  // namespace belfry
