#include "belfry/framework/passes/arena_packer.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

#include "belfry/framework/passes/nodes.h"

namespace belfry {
namespace {

constexpr std::size_t kMostSpans = 128;  // of a run

// What a block adds to the spans that searches may look at.
constexpr std::int64_t kCreditOfBlock = 512;
// Runs below the last block of the same size, where a search begins without credit.
constexpr std::ptrdiff_t kRunsBelow = 2;

}  // namespace

std::int64_t ArenaPacker::put(std::int64_t bytes, std::span<const LaunchIndex> uses) {
  const int number = number_of(uses);
  credit_ += kCreditOfBlock;
  const std::int64_t offset =
      free_offset(bytes, lifetimes_[at(number)], credit_ > 0 ? 0 : begin_of_search(bytes));
  last_[bytes] = offset;
  take({offset, offset + bytes, number});
  end_ = std::max(end_, offset + bytes);
  return offset;
}

int ArenaPacker::number_of(std::span<const LaunchIndex> uses) {
  const auto [found, fresh] =
      numbers_.emplace(std::vector(uses.begin(), uses.end()), static_cast<int>(lifetimes_.size()));
  if (!fresh) return found->second;
  Lifetime& made = lifetimes_.emplace_back(Lifetime{.first = uses.front()});
  each_launch(schedule_, made.first, [&](LaunchIndex l) { made.last_writer = l; });
  std::set<StrandIndex> strands;
  for (const LaunchIndex use : uses | std::views::reverse)
    if (strands.insert(schedule_.launches[use].strand).second) made.last.push_back(use);
  return found->second;
}

std::int64_t ArenaPacker::begin_of_search(std::int64_t bytes) const {
  const auto last = last_.find(bytes);
  if (last == last_.end()) return 0;
  const auto after = std::ranges::upper_bound(
      runs_, last->second, {}, [](const Run& run) { return run.spans.front().begin; });
  if (after - runs_.begin() <= kRunsBelow) return 0;
  return std::prev(after, kRunsBelow + 1)->spans.front().begin;
}

// Skips spans that conflict with the block. If the lifetimes of all spans of a run overlap that of
// the block, the whole run conflicts.
std::int64_t ArenaPacker::free_offset(std::int64_t bytes, const Lifetime& own, std::int64_t begin) {
  std::int64_t offset = begin;
  for (const Run& run : runs_) {
    if (run.end <= offset) continue;
    const bool all = own.first <= run.earliest_last && run.latest_first <= own.last.front();
    if (all && run.gap < bytes) {
      if (run.spans.front().begin - offset >= bytes) return offset;
      offset = std::max(offset, run.end);
      continue;
    }
    credit_ -= std::ssize(run.spans);
    for (const Span& span : run.spans) {
      if (span.end <= offset) continue;
      if (!all && !conflict(own, lifetimes_[at(span.lifetime)])) continue;
      if (span.begin - offset >= bytes) return offset;
      offset = std::max(offset, span.end);
    }
  }
  return offset;
}

bool ArenaPacker::conflict(const Lifetime& a, const Lifetime& b) const {
  return &a == &b || !(all_before(a, b) || all_before(b, a));
}

bool ArenaPacker::all_before(const Lifetime& a, const Lifetime& b) const {
  if (a.last.front() >= b.first) return false;
  for (LaunchIndex l = b.first; l <= b.last_writer; ++l)
    for (const LaunchIndex use : a.last)
      if (!schedule_.happens_before(use, l)) return false;
  return true;
}

void ArenaPacker::take(Span span) {
  if (runs_.empty()) {
    runs_.push_back({.spans = {span}});
    return sum_up(runs_.front());
  }
  const auto behind = std::ranges::upper_bound(
      runs_, span.begin, {}, [](const Run& run) { return run.spans.front().begin; });
  const auto run = behind == runs_.begin() ? behind : std::prev(behind);
  // Blocks of one lifetime are often consecutive.
  const auto before = std::ranges::find_if(run->spans, [&](const Span& other) {
    return other.lifetime == span.lifetime && other.end == span.begin;
  });
  if (before != run->spans.end())
    before->end = span.end;
  else
    run->spans.insert(std::ranges::upper_bound(run->spans, span.begin, {}, &Span::begin), span);
  if (run->spans.size() <= kMostSpans) return sum_up(*run);
  Run rest;
  const auto middle = run->spans.begin() + kMostSpans / 2;
  rest.spans.assign(middle, run->spans.end());
  run->spans.erase(middle, run->spans.end());
  sum_up(*run);
  sum_up(rest);
  runs_.insert(std::next(run), std::move(rest));
}

void ArenaPacker::sum_up(Run& run) const {
  const Lifetime& any = lifetimes_[at(run.spans.front().lifetime)];
  run.end = run.spans.front().end;
  run.gap = 0;
  run.latest_first = any.first;
  run.earliest_last = any.last.front();
  for (const Span& span : run.spans) {
    const Lifetime& lifetime = lifetimes_[at(span.lifetime)];
    run.gap = std::max(run.gap, span.begin - run.end);
    run.end = std::max(run.end, span.end);
    run.latest_first = std::max(run.latest_first, lifetime.first);
    run.earliest_last = std::min(run.earliest_last, lifetime.last.front());
  }
}

}  // namespace belfry
