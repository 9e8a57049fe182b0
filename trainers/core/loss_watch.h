// What a training saw before its loss became NaN or infinite: the basis for advice.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace belfry {

// If this many updates in a row are skipped, something is wrong. Fewer are normal while
// f16 looks for a loss scale.
inline constexpr std::int64_t kMostSkippedInARow = 20;

// The losses of a training, step by step.
class LossWatch {
 public:
  // The loss of a step, counted from 1, and whether its gradients are finite, too. With f16 it is
  // the loss before it is scaled.
  void note(std::int64_t step, double loss, bool finite = true);
  // The last step that was noted; 0: none.
  std::int64_t steps() const { return steps_; }
  // The step since which no step has been finite. None if the last one was.
  std::optional<std::int64_t> not_finite_since() const { return since_; }
  // "the loss grew from 0.3 to 4e+29 in step 7": if the last finite loss was far above those before
  // it. Else "".
  std::string growth() const;

 private:
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> since_;
  // Of finite losses: the first; the moving mean of those before the last; the last, and its step.
  std::optional<double> first_, usual_, last_;
  std::int64_t last_step_ = 0;
};

// Checks that a training that skips updates makes progress. Called after every kMostSkippedInARow
// steps.
class SkipWatch {
 public:
  // The updates that were skipped before the first step.
  void begin(std::int64_t skipped) { skipped_ = skipped; }
  // A warning if all updates since the last call were skipped, or a quarter of those since the last
  // five. It is given once, and once more if the loss scale cannot get smaller. Otherwise "".
  // `all_skipped`: so far. `scale`: that of f16, which then skips them; else none.
  std::string warning(std::int64_t all_skipped, std::optional<double> scale);

 private:
  std::int64_t skipped_ = 0;
  std::deque<std::int64_t> recent_;  // the updates that were skipped between calls
  int said_ = 0;
};

// Possible causes of a loss that is not finite; each is a text for people, or "".
struct Suspects {
  std::string input;       // "field 'x' of training sample 37 has nan at element 0"
  std::string test_input;  // the same of test data
  // "the first update made 'fc/W' as large as 1e+30", "'fc/W' has become as large as 1e+30"
  std::string large_weight;
  std::string
      first_update;  // "the first update made 'fc/W' nan, though the loss before it was finite"
};

}  // namespace belfry
