#include "belfry/framework/trace/communication.h"

#include <algorithm>
#include <vector>

#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/timeline.h"

namespace belfry {
namespace {

using Interval = Recording::Interval;

// The union of the intervals, as disjoint intervals in order.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::start);
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (!result.empty() && next.start <= result.back().end)
      result.back().end = std::max(result.back().end, next.end);
    else
      result.push_back(next);
  }
  return result;
}

std::int64_t length(const std::vector<Interval>& disjoint) {
  std::int64_t sum = 0;
  for (const Interval& interval : disjoint) sum += interval.end - interval.start;
  return sum;
}

// The length of the time that two unions both cover.
std::int64_t common_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum +=
        std::max<std::int64_t>(0, std::min(a[i].end, b[j].end) - std::max(a[i].start, b[j].start));
    ++(a[i].end < b[j].end ? i : j);
  }
  return sum;
}

}  // namespace

CommunicationTime& CommunicationTime::operator+=(const CommunicationTime& other) {
  under_way += other.under_way;
  hidden += other.hidden;
  return *this;
}

std::optional<double> CommunicationTime::hidden_share() const {
  if (under_way == 0) return {};
  return static_cast<double>(hidden) / static_cast<double>(under_way);
}

CommunicationTime communication_of(const Plan& plan, const Timeline& timeline) {
  std::vector<Interval> messages, passes;
  for (const Timeline::Slice& slice : timeline.slices) {
    // Strands have the first tracks, in their order.
    const bool communicates = at(slice.track) < plan.strands.size() &&
                              plan.strands[StrandIndex(slice.track)].communicates;
    const NodeOrigin& origin = plan.node(slice.node).node->origin();
    if (communicates)
      messages.push_back({slice.start, slice.end});
    else if (origin.forward || origin.call > 0)
      passes.push_back({slice.start, slice.end});
  }
  const std::vector<Interval> under_way = united(std::move(messages));
  return {length(under_way), common_length(under_way, united(std::move(passes)))};
}

}  // namespace belfry
