// A set of small numbers that gives the smallest one first.
#pragma once
#include <bit>
#include <cstdint>
#include <ranges>
#include <vector>

namespace belfry {

// A set of numbers below a limit. The lowest level has a bit for each number. The next level has a
// bit for each word of these that is not zero, and so on up to a level of one word. A push or pop
// looks at one word of each level. All levels of a million numbers take 127 KiB.
class SmallestFirst {
 public:
  explicit SmallestFirst(std::size_t limit) {
    do {
      limit = (limit + kBits - 1) / kBits;
      levels_.emplace_back(limit);
    } while (limit > 1);
  }

  bool empty() const { return levels_.back().empty() || levels_.back()[0] == 0; }
  void push(std::size_t number) {
    for (Words& level : levels_) {
      std::uint64_t& word = level[number / kBits];
      const bool was_zero = word == 0;
      word |= bit(number);
      if (!was_zero) return;  // so the levels above have it
      number /= kBits;
    }
  }
  // Removes and returns the smallest number. The set must not be empty.
  std::size_t pop() {
    std::size_t smallest = 0;
    for (const Words& level : levels_ | std::views::reverse)
      smallest = smallest * kBits + static_cast<std::size_t>(std::countr_zero(level[smallest]));
    std::size_t number = smallest;
    for (Words& level : levels_) {
      std::uint64_t& word = level[number / kBits];
      word &= ~bit(number);
      if (word != 0) break;
      number /= kBits;
    }
    return smallest;
  }

 private:
  using Words = std::vector<std::uint64_t>;
  static constexpr std::size_t kBits = 64;
  static std::uint64_t bit(std::size_t number) { return std::uint64_t{1} << number % kBits; }

  std::vector<Words> levels_;  // the lowest first
};

}  // namespace belfry
