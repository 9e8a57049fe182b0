#include "belfry/framework/passes/segments.h"

#include <algorithm>
#include <map>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/plan_kernels/rank_launch.h"

namespace belfry {
namespace {

// Applies the rule of segments.h, launch by launch.
class Cutter {
 public:
  explicit Cutter(const Plan& plan)
      : plan_(plan),
        captured_(plan.launches.size()),
        free_(plan.launches.size()),
        ends_(plan.launches.size()) {}

  std::vector<Segment> run() {
    find_captured();
    find_ends();
    for (const LaunchIndex l : plan_.launches.indices()) {
      if (gpu_of(l) < 0)
        pass_host(l);
      else
        add(l);
    }
    give_strands();
    return std::move(segments_);
  }

 private:
  struct Open {
    std::size_t segment = 0;
    bool closed = true;   // it takes no more launches
    bool awaited = true;  // a host waits for it before this place in the global order
  };

  const Launch& launch(LaunchIndex l) const { return plan_.launches[l]; }
  int gpu_of(LaunchIndex l) const { return plan_.strands[launch(l).strand].gpu; }

  void find_captured() {
    std::map<const Node*, std::vector<LaunchIndex>> parts;  // of ranks
    for (const LaunchIndex l : plan_.launches.indices()) {
      captured_[l] = launch(l).capturable;
      if (captured_[l] && launch(l).rank) parts[&launch(l).rank->node()].push_back(l);
    }
    for (const auto& [collective, all] : parts)
      if (!have_one_place(all))
        for (const LaunchIndex part : all) captured_[part] = false;
  }

  bool have_one_place(const std::vector<LaunchIndex>& parts) const {
    for (LaunchIndex l = parts.front(); l < parts.back();) {
      ++l;
      for (const Wait& wait : launch(l).waits)
        if (const int gpu = gpu_of(plan_.awaited(wait)); gpu >= 0 && gpu != gpu_of(l)) return false;
    }
    return true;
  }

  // Finds launches that another GPU, or a launch that is not captured, waits for.
  void find_ends() {
    for (const LaunchIndex l : plan_.launches.indices()) {
      const int gpu = gpu_of(l);
      for (const Wait& wait : launch(l).waits)
        if (gpu >= 0 && (gpu_of(plan_.awaited(wait)) != gpu || !captured_[l]))
          ends_[plan_.awaited(wait)] = true;
    }
  }

  void pass_host(LaunchIndex l) {
    for (const Wait& wait : launch(l).waits) {
      const LaunchIndex before = plan_.awaited(wait);
      const int gpu = gpu_of(before);
      hosts_wait_ = hosts_wait_ || gpu >= 0;
      if (gpu < 0 || plan_.node(launch(l).node).fetch() >= 0) continue;
      Open& open = open_[gpu];
      if (std::ranges::binary_search(segments_[open.segment].launches, before)) open.awaited = true;
    }
    free_[l] = !hosts_wait_;
  }

  void add(LaunchIndex l) {
    const int gpu = gpu_of(l);
    Open& open = open_[gpu];
    if (open.closed || (open.awaited && !copies_to_host(l)) || !captured_[l] || waits_outside(l)) {
      open = {.segment = segments_.size(), .closed = false, .awaited = false};
      segments_.push_back({.gpu = gpu, .strand = launch(l).strand, .launches = {}});
    }
    Segment& segment = segments_[open.segment];
    segment.launches.push_back(l);
    segment.writes = segment.writes || plan_.changes_variables(l);
    open.closed = ends_[l] || !captured_[l];
  }

  bool waits_outside(LaunchIndex l) const {
    return std::ranges::any_of(launch(l).waits, [&](const Wait& wait) {
      const LaunchIndex before = plan_.awaited(wait);
      const int gpu = gpu_of(before);
      if (gpu < 0) return !free_[before];
      return gpu != gpu_of(l) || !captured_[before];
    });
  }

  // Copies to other GPUs are on strands of their destination, so they do not count.
  bool copies_to_host(LaunchIndex l) const {
    const PlanNode& node = plan_.node(launch(l).node);
    return node.op == &kCopy && node.device() != plan_.strands[launch(l).strand].device;
  }

  // Puts all graphs of a GPU into one stream.
  void give_strands() {
    std::map<int, StrandIndex> strand_of;
    for (Segment& segment : segments_)
      if (segment.is_graph())
        segment.strand = strand_of.emplace(segment.gpu, segment.strand).first->second;
  }

  const Plan& plan_;
  Indexed<Launch, char> captured_;
  bool hosts_wait_ = false;     // a host has waited for a GPU, so later ones may come after it
  Indexed<Launch, char> free_;  // a launch of a host; neither it nor any before it waits for a GPU
  Indexed<Launch, char> ends_;
  std::map<int, Open> open_;  // by GPU
  std::vector<Segment> segments_;
};

}  // namespace

std::vector<Segment> cut_segments(const Plan& plan) { return Cutter(plan).run(); }

std::vector<Segment> single_launches(const Plan& plan) {
  std::vector<Segment> all;
  for (const LaunchIndex l : plan.launches.indices()) {
    const StrandIndex strand = plan.launches[l].strand;
    if (plan.on_gpu(strand))
      all.push_back({.gpu = plan.strands[strand].gpu, .strand = strand, .launches = {l}});
  }
  return all;
}

}  // namespace belfry
