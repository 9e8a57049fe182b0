// An axis of a chart: the pixels of values, and its ticks.
#pragma once
#include <string>
#include <vector>

namespace belfry {

// The least of 1, 2 or 5 times a power of ten of which at most `most` steps fit into `length`,
// which is above 0.
double round_step(double length, int most);

class Axis {
 public:
  enum class Scale { kLinear, kLog };

  // Values from `least` to `most` lie from pixel `begin` to pixel `end`. On a logarithmic axis both
  // values are above 0. If they are almost equal, the axis is made longer.
  Axis(double least, double most, Scale scale, double begin, double end);

  // The pixel of a value. Values beyond an end lie at that end, and NaN lies at the first end.
  double at(double value) const;
  struct Tick {
    double value;
    std::string text;  // with enough digits to tell ticks apart: "0.25", "20k"
  };
  // Round values within the ends. A linear axis has at most `most` steps between them, a
  // logarithmic one about so many.
  std::vector<Tick> ticks(int most) const;
  double length() const { return most_ - least_; }

 private:
  double place(double value) const;  // of a value on a linear scale
  std::vector<Tick> linear_ticks(int most) const;
  std::vector<Tick> log_ticks(int most) const;

  Scale scale_;
  double least_, most_, begin_, end_;
};

}  // namespace belfry
