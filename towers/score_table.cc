#include "belfry/towers/score_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

constexpr std::size_t kMostScores = std::size_t{1} << 20;
constexpr std::size_t kFewUnsorted = 4096;
constexpr std::uint64_t kSign = std::uint64_t{1} << 63;

// The bits of a float are in the order of floats but for the sign.
std::uint64_t place_of(double score) {
  const auto bits = std::bit_cast<std::uint64_t>(score);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

std::uint64_t without_bits(std::uint64_t place, int bits) { return place >> bits << bits; }

// The counts before `middle`, and those from there on, are in their order.
void merge(std::span<ScoreCount> counts, std::size_t middle) {
  std::ranges::inplace_merge(counts, counts.begin() + static_cast<std::ptrdiff_t>(middle), {},
                             &ScoreCount::place);
}

// The first `sorted` counts are in their order.
void sort_rest(std::span<ScoreCount> counts, std::size_t sorted) {
  std::ranges::sort(counts.subspan(sorted), {}, &ScoreCount::place);
  merge(counts, sorted);
}

// Makes equal scores, which follow each other, one.
void join_equal(std::vector<ScoreCount>& counts) {
  std::size_t size = 0;
  for (const ScoreCount& count : counts)
    if (size > 0 && counts[size - 1].place == count.place) {
      counts[size - 1].zeros += count.zeros;
      counts[size - 1].ones += count.ones;
    } else {
      counts[size++] = count;
    }
  counts.resize(size);
}

}  // namespace

void ScoreTable::add(std::span<const double> rows) {
  for (std::size_t i = 0; i + 1 < rows.size(); i += 2) {
    const double score = rows[i] + 0.0, label = rows[i + 1];  // -0 becomes 0
    if (label != 0 && label != 1) continue;
    if (std::isnan(score))
      has_nan_ = true;
    else
      counts_.push_back({without_bits(place_of(score), bits_cut_), 1 - label, label});
  }
  if (counts_.size() > 2 * sorted_ + kFewUnsorted) sort();
}

// Both are sorted, up to the last rows of the other.
void ScoreTable::add(const ScoreTable& other) {
  sort();
  has_nan_ = has_nan_ || other.has_nan_;
  const std::size_t own = counts_.size();
  counts_.insert(counts_.end(), other.counts_.begin(), other.counts_.end());
  if (bits_cut_ != other.bits_cut_) {
    bits_cut_ = std::max(bits_cut_, other.bits_cut_);
    for (ScoreCount& count : counts_) count.place = without_bits(count.place, bits_cut_);
  }
  sort_rest(std::span(counts_).subspan(own), other.sorted_);
  merge(counts_, own);
  join();
}

void ScoreTable::clear() {
  counts_.clear();
  sorted_ = 0;
  bits_cut_ = 0;
  has_nan_ = false;
}

std::span<const ScoreCount> ScoreTable::counts() {
  sort();
  return counts_;
}

void ScoreTable::sort() {
  if (sorted_ == counts_.size()) return;
  sort_rest(counts_, sorted_);
  join();
}

void ScoreTable::join() {
  join_equal(counts_);
  if (counts_.size() > kMostScores) cut_bits();
  sorted_ = counts_.size();
}

// Two neighbours become one score if the highest bit in which they differ is cut off.
void ScoreTable::cut_bits() {
  std::array<std::size_t, 65> neighbours = {};  // by that bit
  for (std::size_t i = 1; i < counts_.size(); ++i)
    ++neighbours[static_cast<std::size_t>(std::bit_width(counts_[i - 1].place ^ counts_[i].place))];
  for (std::size_t left = counts_.size(); left > kMostScores;)
    left -= neighbours[static_cast<std::size_t>(++bits_cut_)];
  for (ScoreCount& count : counts_) count.place = without_bits(count.place, bits_cut_);
  join_equal(counts_);
}

void ScoreTable::write(std::string& bytes) {
  sort();
  const std::array<std::uint64_t, 3> head{counts_.size(), static_cast<std::uint64_t>(bits_cut_),
                                          has_nan_ ? 1u : 0u};
  bytes.append(reinterpret_cast<const char*>(head.data()), sizeof head);
  bytes.append(reinterpret_cast<const char*>(counts_.data()), counts_.size() * sizeof(ScoreCount));
}

void ScoreTable::read(std::string_view& bytes) {
  std::array<std::uint64_t, 3> head;
  require(bytes.size() >= sizeof head, "a table of scores from another process is cut off");
  std::memcpy(head.data(), bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  require(head[0] <= bytes.size() / sizeof(ScoreCount) && head[1] < 64,
          "a table of scores from another process is damaged: it has ", head[0], " scores in ",
          bytes.size(), " bytes");
  ScoreTable other;
  other.counts_.resize(head[0]);
  const std::size_t size = other.counts_.size() * sizeof(ScoreCount);
  std::memcpy(static_cast<void*>(other.counts_.data()), bytes.data(), size);
  bytes.remove_prefix(size);
  other.sorted_ = other.counts_.size();
  other.bits_cut_ = static_cast<int>(head[1]);
  for (ScoreCount& count : other.counts_) count.place = without_bits(count.place, other.bits_cut_);
  require(std::ranges::is_sorted(other.counts_, {}, &ScoreCount::place),
          "a table of scores from another process is damaged: its scores have no order");
  other.has_nan_ = head[2] != 0;
  add(other);
}

}  // namespace belfry
