#include "belfry/framework/passes/arena_packer.h"

#include <algorithm>
#include <ranges>
#include <set>

namespace belfry {

std::int64_t ArenaPacker::put(std::int64_t bytes, const std::vector<LaunchIndex>& uses) {
  const int number = number_of(uses);
  compare(number);
  const std::vector<char>& conflicts = lifetimes_[at(number)].conflicts;
  std::int64_t offset = 0;
  for (const Span& span : spans_) {
    if (!conflicts[at(span.lifetime)]) continue;
    if (span.begin - offset >= bytes) break;
    offset = std::max(offset, span.end);
  }
  take({offset, offset + bytes, number});
  end_ = std::max(end_, offset + bytes);
  return offset;
}

int ArenaPacker::number_of(const std::vector<LaunchIndex>& uses) {
  const auto [found, fresh] = numbers_.emplace(uses, static_cast<int>(lifetimes_.size()));
  if (!fresh) return found->second;
  Lifetime& made = lifetimes_.emplace_back(Lifetime{.first = uses.front()});
  std::set<StrandIndex> strands;
  for (const LaunchIndex use : uses | std::views::reverse)
    if (strands.insert(schedule_.launches[use].strand).second) made.last.push_back(use);
  return found->second;
}

// With all lifetimes that came since it was asked for last.
void ArenaPacker::compare(int number) {
  Lifetime& own = lifetimes_[at(number)];
  for (int other = static_cast<int>(own.conflicts.size()); other < std::ssize(lifetimes_); ++other)
    own.conflicts.push_back(other == number || conflict(own, lifetimes_[at(other)]));
}

bool ArenaPacker::conflict(const Lifetime& a, const Lifetime& b) const {
  return !(all_before(a, b.first) || all_before(b, a.first));
}

bool ArenaPacker::all_before(const Lifetime& a, LaunchIndex launch) const {
  return a.last.front() < launch && std::ranges::all_of(a.last, [&](LaunchIndex use) {
           return schedule_.happens_before(use, launch);
         });
}

void ArenaPacker::take(Span span) {
  // Blocks of one lifetime often come behind each other.
  for (Span& other : spans_)
    if (other.lifetime == span.lifetime && other.end == span.begin) {
      other.end = span.end;
      return;
    }
  spans_.insert(std::ranges::upper_bound(spans_, span.begin, {}, &Span::begin), span);
}

}  // namespace belfry
