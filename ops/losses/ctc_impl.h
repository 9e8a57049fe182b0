// The lattice of the CTC loss, for hosts and GPUs.
//
// A sample with labels a b has the states blank a blank b blank. A path begins in one of the first
// two states. In each step of time it stays, advances by one state, or by two if that skips a blank
// between different labels. It ends in one of the last two. States emit their symbol.
#pragma once
#include "belfry/framework/graph/op.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/losses/ctc_loss.h"

namespace belfry::ctc {

inline constexpr double kNever = -math::Format<double>::kInfinity;  // log(0)

// i32 or i64.
struct Integers {
  const void* at;
  bool wide;  // i64

  BELFRY_HD std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(at)[i] : static_cast<const std::int32_t*>(at)[i];
  }
};

// log(e^a + e^b + e^c).
BELFRY_HD double log_add(double a, double b, double c) {
  const double most_of_two = a > b ? a : b;
  const double most = most_of_two > c ? most_of_two : c;
  const double shift = most > kNever ? most : 0.0;
  return shift + math::log((math::exp(a - shift) + math::exp(b - shift)) + math::exp(c - shift));
}

// The states of a sample.
struct States {
  Integers labels;
  std::int64_t first;  // number of its first label
  std::int64_t count;  // of its labels
  std::int64_t blank;

  BELFRY_HD std::int64_t size() const { return 2 * count + 1; }
  BELFRY_HD std::int64_t symbol(std::int64_t s) const {
    return s % 2 == 0 ? blank : labels[first + s / 2];
  }
  // Whether a path may come to s from s - 2.
  BELFRY_HD bool skips(std::int64_t s) const {
    return s % 2 == 1 && s > 2 && symbol(s) != symbol(s - 2);
  }
};

// What a sample has that a run refuses. Numbers are kept in faults of GPUs.
enum class Mistake : std::uint8_t { kNone, kLogitLength, kLabelLength, kLabel };
inline constexpr std::int64_t kMistakes = 4;
struct Found {
  Mistake mistake = Mistake::kNone;
  std::int64_t value = 0;
};

// Sizes and options.
struct Sizes {
  explicit Sizes(const KernelPlan& plan)
      : rows(plan.input(0).shape[0]),
        time(plan.input(0).shape[1]),
        classes(plan.input(0).shape[2]),
        most_labels(plan.input(1).shape[1]),
        blank(plan.options<CtcOptions>().blank),
        zero_infinity(plan.options<CtcOptions>().zero_infinity) {
    for (std::size_t i = 0; i < 3; ++i) wide[i] = plan.input(i + 1).dtype == DType::kI64;
  }
  std::int64_t most_states() const { return 2 * most_labels + 1; }

  std::int64_t rows, time, classes, most_labels, blank;
  bool zero_infinity;
  bool wide[3];  // labels, logit_lengths, label_lengths
};

// The inputs of a run.
struct Batch {
  Batch(const Sizes& s, const KernelPointers& p)
      : sizes(s),
        labels{p.input<void>(1), s.wide[0]},
        logit_lengths{p.input<void>(2), s.wide[1]},
        label_lengths{p.input<void>(3), s.wide[2]} {}

  BELFRY_HD States states(std::int64_t row) const {
    return {labels, row * sizes.most_labels, label_lengths[row], sizes.blank};
  }
  BELFRY_HD Found check(std::int64_t row) const {
    const std::int64_t steps = logit_lengths[row], count = label_lengths[row];
    if (steps < 0 || steps > sizes.time) return {Mistake::kLogitLength, steps};
    if (count < 0 || count > sizes.most_labels) return {Mistake::kLabelLength, count};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t label = labels[row * sizes.most_labels + i];
      if (label < 0 || label >= sizes.classes || label == sizes.blank)
        return {Mistake::kLabel, label};
    }
    return {};
  }
  // The loss of a row whose paths have the probability e^log_probability.
  BELFRY_HD double loss(double log_probability) const {
    return sizes.zero_infinity && log_probability == kNever ? 0.0 : -log_probability;
  }
  // Whether the gradient of such a row comes from its paths.
  BELFRY_HD bool has_lattice_gradient(double log_probability) const {
    return log_probability - log_probability == 0;  // finite
  }
  // The gradient of each element of a row otherwise.
  template <class T>
  BELFRY_HD T other_gradient(double log_probability) const {
    return sizes.zero_infinity && log_probability == kNever ? T(0) : math::Format<T>::kNan;
  }

  Sizes sizes;
  Integers labels, logit_lengths, label_lengths;
};

// Throws: row `row` of the batch has this mistake.
[[noreturn]] void refuse(const Node& node, const Sizes& sizes, std::int64_t row, Found found);

}  // namespace belfry::ctc
