#include "belfry/tests/support/stand_in_capture.h"

#include <algorithm>
#include <set>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry::test {

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (const Access& one : a)
    for (const Access& other : b)
      if ((one.writes || other.writes) &&
          std::max(one.begin, other.begin) < std::min(one.end, other.end))
        return true;
  return false;
}

void refuse_race(const std::string& first, const std::string& second) {
  throw DeviceError(
      cat("'", first, "' and '", second, "' use the same memory, and nothing orders them"));
}

StandInSegment::StandInSegment(int gpu, std::vector<Work> in_order)
    : gpu_(gpu), work_(std::make_shared<const std::vector<Work>>(std::move(in_order))) {
  // Joins neighbours, so that few accesses are left.
  for (const bool writes : {false, true}) {
    std::vector<Access> all;
    for (const Work& work : *work_)
      for (const Access& access : work.accesses)
        if (access.writes == writes) all.push_back(access);
    std::ranges::sort(all, {}, &Access::begin);
    const auto first = accesses_.size();
    for (const Access& access : all) {
      if (accesses_.size() > first && access.begin <= accesses_.back().end)
        accesses_.back().end = std::max(accesses_.back().end, access.end);
      else
        accesses_.push_back(access);
    }
  }
}

void StandInCapture::add(int stream, Front& front, Work work) {
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& other = nodes_[n];
    if (front.clock.of(other.stream) > static_cast<std::int64_t>(n)) continue;
    if (!conflict(work.accesses, other.work.accesses)) continue;
    broken_ = "a race";
    refuse_race(other.work.served, work.served);
  }
  const int number = static_cast<int>(nodes_.size());
  nodes_.push_back({stream, std::move(work), front});
  front.nodes = {number};
  front.clock.reach(stream, number + 1);
}

void StandInCapture::refuse(const std::string& why) {
  broken_ = why;
  throw DeviceError(why);
}

// Takes the last node that is ready, again and again.
std::vector<Work> StandInCapture::in_order() const {
  std::vector<std::size_t> missing(nodes_.size());
  std::vector<std::vector<int>> behind(nodes_.size());
  std::set<int> ready;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    missing[n] = nodes_[n].front.nodes.size();
    for (const int before : nodes_[n].front.nodes)
      behind[static_cast<std::size_t>(before)].push_back(static_cast<int>(n));
    if (missing[n] == 0) ready.insert(static_cast<int>(n));
  }
  std::vector<Work> order;
  while (!ready.empty()) {
    const auto n = static_cast<std::size_t>(*ready.rbegin());
    ready.erase(static_cast<int>(n));
    order.push_back(nodes_[n].work);
    for (const int next : behind[n])
      if (--missing[static_cast<std::size_t>(next)] == 0) ready.insert(next);
  }
  return order;
}

}  // namespace belfry::test
