// How often each score occurs with either label: what metrics of the order of scores are made of.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// How many samples of label 0, and of label 1, have a score.
struct ScoreCount {
  std::uint64_t place;  // a larger score has a larger one
  double zeros, ones;
};

// Exact for up to a million different scores. If there are more, the lowest bits of all of them are
// cut off, no more than it takes to make so few. What is cut off follows from the set of scores
// alone. So tables of parts of the samples add up to the same table in any order.
class ScoreTable {
 public:
  // Adds rows of a score and its label. Other labels than 0 and 1 do not count.
  void add(std::span<const double> rows);
  void add(const ScoreTable& other);
  void clear();

  // Whether a score that counts is NaN; counts() are then of no use.
  bool has_nan() const { return has_nan_; }
  // By ascending score, each once.
  std::span<const ScoreCount> counts();

  // For other processes: appends the table to a text, and adds the one that a text begins with,
  // which it removes there.
  void write(std::string& bytes);
  void read(std::string_view& bytes);

 private:
  void sort();
  void join();
  void cut_bits();

  std::vector<ScoreCount> counts_;
  std::size_t sorted_ = 0;  // the first counts: of different scores, in their order
  int bits_cut_ = 0;
  bool has_nan_ = false;
};

}  // namespace belfry
