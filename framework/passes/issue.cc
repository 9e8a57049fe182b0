// Turns the schedule into command lists. Pass `schedule` has found who waits for whom. Only this
// pass chooses how each wait is done, and which launches a GPU gets as one segment.
//
// A CPU strand waits for signals of other CPUs and for stamps of GPUs. A GPU has one thread, which
// enqueues for all its strands; enqueued work waits in its stream for events of other streams. The
// thread itself waits for a CPU strand. It also waits until the thread of another GPU has recorded
// an event that one of its own streams will wait for. Lists hold for any number of workers: they do
// not say which worker follows which strand.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/passes/segments.h"

namespace belfry {
namespace {

using Kind = Command::Kind;

// Keeps one wait per strand, the latest.
void add_wait(std::vector<Wait>& waits, const Wait& wait) {
  const auto same = std::ranges::find(waits, wait.strand, &Wait::strand);
  if (same == waits.end())
    waits.push_back(wait);
  else
    same->position = std::max(same->position, wait.position);
}

// What a segment waits for, and what it signals to others.
struct Needs {
  std::vector<Wait> waits;         // by its thread
  std::vector<int> after;          // segments of other streams; it waits for their events
  std::vector<int> fed;            // entries of fed_gpus() that it waits for
  std::vector<StrandIndex> steps;  // strands whose kernels need the number of the step
  std::vector<Wait> stamps;        // hosts wait for these
  std::vector<Wait> signals;       // threads of other GPUs wait for these
  int event = -1;                  // recorded after it
};

// The work of GPUs, cut in one of two ways: single_launches() or cut_segments().
struct Segments {
  Segments(const Plan& plan, const std::vector<Segment>& cut)
      : all(cut), of_launch(plan.launches.size(), -1) {
    for (std::size_t s = 0; s < cut.size(); ++s)
      for (const LaunchIndex l : cut[s].launches) of_launch[l] = static_cast<int>(s);
  }
  const Segment& operator[](int s) const { return all[at(s)]; }

  const std::vector<Segment>& all;
  Indexed<Launch, int> of_launch;  // -1 on a CPU
};

int new_event(std::vector<StrandIndex>& events, StrandIndex recorded_in) {
  events.push_back(recorded_in);
  return static_cast<int>(events.size()) - 1;
}

// Finds the needs of segments. Each stream has a vector clock, which says the last segment of each
// other stream that it comes after; -1: none. Further entries, one per GPU, are 0 if the stream
// comes after the copies of that GPU's feeds, else -1.
class NeedFinder {
 public:
  NeedFinder(const Plan& plan, const Segments& segments, std::vector<StrandIndex>& events)
      : plan_(plan),
        segments_(segments),
        events_(events),
        fed_(fed_gpus(plan)),
        stamped_(plan.launches.size()),
        stepped_(plan.strands.size()),
        known_(plan.strands.size()) {
    for (const StrandIndex s : plan.strands.indices())
      if (plan.on_gpu(s)) known_[s].assign(plan.strands.size() + fed_.size(), -1);
    for (const LaunchIndex l : plan.launches.indices()) {
      const Launch& launch = plan.launches[l];
      if (launch.rank) stamped_[l] = true;  // to know which one does not finish
      for (const Wait& wait : launch.waits)
        if (!plan.on_gpu(launch.strand)) stamped_[plan.awaited(wait)] = true;
    }
    for (const Strand& strand : plan.strands) stamped_[strand.launches.back()] = true;
  }

  std::vector<Needs> run() {
    for (std::size_t s = 0; s < segments_.all.size(); ++s) {
      needs_.emplace_back();
      find_waits(static_cast<int>(s));
      find_stamps(static_cast<int>(s));
    }
    return std::move(needs_);
  }

 private:
  void find_waits(int s) {
    const Segment& segment = segments_[s];
    Needs& needs = needs_[at(s)];
    std::vector<int> before;
    for (const LaunchIndex l : segment.launches) {
      const Launch& launch = plan_.launches[l];
      if (plan_.node(launch.node).op->random && !std::exchange(stepped_[launch.strand], true))
        needs.steps.push_back(launch.strand);
      for (const Wait& wait : launch.waits) find_wait(s, wait, before);
      if (launch.position > 0)
        before.push_back(segments_.of_launch[plan_.awaited({launch.strand, launch.position - 1})]);
    }
    std::erase(before, s);
    sort_unique(before);
    // Starts with the latest: a wait for it implies the waits that come before it.
    std::vector<int>& clock = known_[segment.strand];
    for (const int earlier : before | std::views::reverse) {
      if (clock[at(segments_[earlier].strand.value())] >= earlier) continue;
      needs.after.push_back(earlier);
      leave_event(earlier);
      come_behind(clock, earlier);
    }
    find_feeds(s, clock);
    clock[at(segment.strand.value())] = s;
    clocks_.push_back(clock);
  }

  void find_wait(int s, const Wait& wait, std::vector<int>& before) {
    if (!plan_.on_gpu(wait.strand)) return add_wait(needs_[at(s)].waits, wait);
    const int earlier = segments_.of_launch[plan_.awaited(wait)];
    before.push_back(earlier);
    if (plan_.strands[wait.strand].gpu == segments_[s].gpu) return;
    // The thread of the other GPU must have recorded the event.
    add_wait(needs_[at(s)].waits, wait);
    add_wait(needs_[at(earlier)].signals, wait);
  }

  void find_feeds(int s, std::vector<int>& clock) {
    for (const LaunchIndex l : segments_[s].launches)
      for (const Value& input : plan_.node(plan_.launches[l].node).inputs) {
        const BufferRecord& record = plan_.buffers[plan_.buffer(input)];
        const auto slots = std::ranges::find(plan_.feed_slots, record.device, &FeedSlots::device);
        if (record.kind != BufferKind::kFeed || slots == plan_.feed_slots.end()) continue;
        const auto gpu = std::ranges::lower_bound(fed_, slots->gpu) - fed_.begin();
        if (std::exchange(clock[plan_.strands.size() + at(gpu)], 0) < 0)
          needs_[at(s)].fed.push_back(static_cast<int>(gpu));
      }
  }

  // Each strand is stamped in its own stream, so that a stamp covers the faults of this strand.
  void find_stamps(int s) {
    const Segment& segment = segments_[s];
    std::vector<Wait>& stamps = needs_[at(s)].stamps;
    for (const LaunchIndex l : segment.launches)
      if (stamped_[l]) add_wait(stamps, {plan_.launches[l].strand, -1});
    for (const LaunchIndex l : segment.launches) {
      const Launch& launch = plan_.launches[l];
      const auto stamp = std::ranges::find(stamps, launch.strand, &Wait::strand);
      if (stamp != stamps.end()) stamp->position = launch.position;
    }
    for (const Wait& stamp : stamps) {
      if (stamp.strand == segment.strand) continue;
      leave_event(s);
      come_behind(known_[stamp.strand], s);
    }
  }

  void leave_event(int s) {
    int& event = needs_[at(s)].event;
    if (event < 0) event = new_event(events_, segments_[s].strand);
  }

  void come_behind(std::vector<int>& clock, int s) const {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], clocks_[at(s)][i]);
  }

  const Plan& plan_;
  const Segments& segments_;
  std::vector<StrandIndex>& events_;
  const std::vector<int> fed_;               // fed_gpus()
  Indexed<Launch, char> stamped_;            // a host waits for it
  Indexed<Strand, char> stepped_;            // its kernels know the step
  Indexed<Strand, std::vector<int>> known_;  // clocks, by stream
  std::vector<std::vector<int>> clocks_;     // by segment
  std::vector<Needs> needs_;                 // by segment
};

// Writes the lists of GPUs.
class GpuIssuer {
 public:
  GpuIssuer(const Plan& plan, const Segments& segments, const std::vector<Needs>& needs,
            std::vector<StrandIndex>& events)
      : plan_(plan),
        segments_(segments),
        needs_(needs),
        events_(events),
        lists_(plan.strands.size()) {}

  CommandLists run() {
    for (std::size_t s = 0; s < segments_.all.size(); ++s) issue(static_cast<int>(s));
    issue_ends();
    return std::move(lists_);
  }

 private:
  void issue(int s) {
    const Segment& segment = segments_[s];
    const Needs& needs = needs_[at(s)];
    const LaunchIndex first = segment.launches.front(), last = segment.launches.back();
    list_ = &lists_[segment.strand];
    for (const Wait& wait : needs.waits) add(Kind::kWait, first, wait);
    for (const int earlier : needs.after)
      add(Kind::kWaitEvent, first, segment.strand, needs_[at(earlier)].event);
    for (const int gpu : needs.fed) add(Kind::kWaitFeeds, first, segment.strand, gpu);
    for (const StrandIndex kernels : needs.steps)
      add(Kind::kSetStep, first, segment.strand, kernels.value());
    // Before the launch, which may fail at once, and be queried at once.
    for (const Wait& stamp : needs.stamps)
      if (has_rank(segment, stamp.strand)) add(Kind::kExpect, first, stamp);
    if (segment.is_graph())
      issue_graph(s);
    else
      add(Kind::kLaunch, first, segment.strand);
    if (needs.event >= 0) add(Kind::kRecord, last, segment.strand, needs.event);
    for (const Wait& stamp : needs.stamps) {
      if (stamp.strand != segment.strand) add(Kind::kWaitEvent, last, stamp.strand, needs.event);
      add(Kind::kStamp, last, stamp);
    }
    for (const Wait& signal : needs.signals) add(Kind::kSignal, last, signal);
  }

  bool has_rank(const Segment& segment, StrandIndex strand) const {
    return std::ranges::any_of(segment.launches, [&](LaunchIndex l) {
      return plan_.launches[l].strand == strand && plan_.launches[l].rank;
    });
  }

  // Inside a graph, strands wait for each other as they do launch by launch. In addition each other
  // strand starts after the beginning of the segment, and the segment ends after that strand. A
  // wait of that strand, or a wait for its last launch, may imply either.
  void issue_graph(int s) {
    const Segment& segment = segments_[s];
    std::map<LaunchIndex, int> awaited;  // events of launches that others of the segment wait for
    std::map<StrandIndex, LaunchIndex> last_of;
    for (const LaunchIndex l : segment.launches) {
      last_of[plan_.launches[l].strand] = l;
      for (const LaunchIndex before : waits_inside(s, l))
        if (!awaited.contains(before))
          awaited[before] = new_event(events_, plan_.launches[before].strand);
    }
    const LaunchIndex first = segment.launches.front(), last = segment.launches.back();
    const std::size_t begin = list_->size();
    add(Kind::kBeginSegment, first, segment.strand, s);
    const int beginning = begins_alone(s) ? -1 : new_event(events_, segment.strand);
    if (beginning >= 0) add(Kind::kRecord, first, segment.strand, beginning);
    std::set<StrandIndex> begun{segment.strand};
    for (const LaunchIndex l : segment.launches) {
      const StrandIndex strand = plan_.launches[l].strand;
      const std::vector<LaunchIndex> waits = waits_inside(s, l);
      if (begun.insert(strand).second && waits.empty()) add(Kind::kWaitEvent, l, strand, beginning);
      for (const LaunchIndex before : waits) add(Kind::kWaitEvent, l, strand, awaited.at(before));
      add(Kind::kLaunch, l, strand);
      if (awaited.contains(l)) add(Kind::kRecord, l, strand, awaited.at(l));
    }
    for (const auto& [strand, launch] : last_of) {
      if (strand == segment.strand || awaited.contains(launch)) continue;
      const int end = new_event(events_, strand);
      add(Kind::kRecord, last, strand, end);
      add(Kind::kWaitEvent, last, segment.strand, end);
    }
    add(Kind::kEndSegment, last, segment.strand, s);
    (*list_)[begin].position = static_cast<int>(list_->size() - 1 - begin);
  }

  // The thread of a GPU ends only when the GPU has finished all its work.
  void issue_ends() {
    std::map<int, const Segment*> last_of;
    for (const Segment& segment : segments_.all) last_of[segment.gpu] = &segment;
    for (const auto& [gpu, segment] : last_of) {
      list_ = &lists_[segment->strand];
      for (const StrandIndex s : plan_.strands.indices())
        if (plan_.strands[s].gpu == gpu)
          add(Kind::kWaitStamp, segment->launches.back(), {s, plan_.strands[s].last()});
    }
  }

  // Whether no other strand must wait for the beginning of the segment.
  bool begins_alone(int s) const {
    const Segment& segment = segments_[s];
    std::set<StrandIndex> begun{segment.strand};
    return std::ranges::none_of(segment.launches, [&](LaunchIndex l) {
      return begun.insert(plan_.launches[l].strand).second && waits_inside(s, l).empty();
    });
  }

  std::vector<LaunchIndex> waits_inside(int s, LaunchIndex launch) const {
    std::vector<LaunchIndex> inside;
    for (const Wait& wait : plan_.launches[launch].waits)
      if (segments_.of_launch[plan_.awaited(wait)] == s) inside.push_back(plan_.awaited(wait));
    return inside;
  }

  void add(Kind kind, LaunchIndex launch, const Wait& where) {
    list_->push_back({kind, launch, where.strand, where.position});
  }
  void add(Kind kind, LaunchIndex launch, StrandIndex strand, int number = 0) {
    list_->push_back({.kind = kind, .launch = launch, .strand = strand, .number = number});
  }

  const Plan& plan_;
  const Segments& segments_;
  const std::vector<Needs>& needs_;  // by segment
  std::vector<StrandIndex>& events_;
  CommandLists lists_;
  std::vector<Command>* list_ = nullptr;  // of the segment that is being issued
};

CommandLists issue_gpus(const Plan& plan, const std::vector<Segment>& cut,
                        std::vector<StrandIndex>& events) {
  const Segments segments(plan, cut);
  const std::vector<Needs> needs = NeedFinder(plan, segments, events).run();
  return GpuIssuer(plan, segments, needs, events).run();
}

// The waits of strands that exchange messages between processes.
std::set<Wait> waited_for_by_messages(const Plan& plan) {
  std::set<Wait> waits;
  for (const StrandIndex s : plan.strands.indices())
    if (plan.exchanges(s))
      for (const LaunchIndex l : plan.strands[s].launches)
        waits.insert(plan.launches[l].waits.begin(), plan.launches[l].waits.end());
  return waits;
}

// Writes the lists of CPUs. waited_for: launches whose signals somebody waits for.
void issue_hosts(const Plan& plan, const std::set<Wait>& waited_for, CommandLists& lists) {
  const std::set<Wait> by_messages = waited_for_by_messages(plan);
  for (const StrandIndex s : plan.strands.indices()) {
    if (plan.on_gpu(s)) continue;
    for (const LaunchIndex l : plan.strands[s].launches) {
      const Launch& launch = plan.launches[l];
      for (const Wait& wait : launch.waits)
        lists[s].push_back({plan.on_gpu(wait.strand) ? Kind::kWaitStamp : Kind::kWait, l,
                            wait.strand, wait.position});
      lists[s].push_back({.kind = Kind::kLaunch, .launch = l, .strand = s});
      if (waited_for.contains({s, launch.position}))
        lists[s].push_back({Kind::kSignal, l, s, launch.position});
      if (by_messages.contains({s, launch.position}) && !plan.exchanges(s))
        lists[s].push_back({Kind::kWake, l, s, launch.position});
    }
  }
}

}  // namespace

Commands issue(const Plan& plan, bool capture) {
  Commands commands;
  commands.lists = issue_gpus(plan, single_launches(plan), commands.events);
  std::set<Wait> waited_for;
  for (const std::vector<Command>& list : commands.lists)
    for (const Command& command : list)
      if (command.kind == Kind::kWait) waited_for.insert({command.strand, command.position});
  for (const Launch& launch : plan.launches)
    if (!plan.on_gpu(launch.strand)) waited_for.insert(launch.waits.begin(), launch.waits.end());
  issue_hosts(plan, waited_for, commands.lists);
  if (!capture) return commands;
  commands.segments = cut_segments(plan);
  if (std::ranges::none_of(commands.segments, &Segment::is_graph)) {
    commands.segments.clear();
    return commands;
  }
  commands.in_segments = issue_gpus(plan, commands.segments, commands.events);
  for (const StrandIndex s : plan.strands.indices())
    if (!plan.on_gpu(s)) commands.in_segments[s] = commands.lists[s];
  return commands;
}

}  // namespace belfry
