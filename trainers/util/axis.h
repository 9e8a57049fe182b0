// An axis of a chart: where values lie, in pixels, and which of them are written beside it.
#pragma once
#include <string>
#include <vector>

namespace belfry {

// 1, 2 or 5 times a power of ten: the least with which no more than `most` steps fit into `length`,
// which is above 0.
double round_step(double length, int most);

class Axis {
 public:
  enum class Scale { kLinear, kLog };

  // Values from `least` to `most` lie from pixel `begin` to pixel `end`. On a logarithmic axis both
  // are above 0. Where they are alike, the axis is made longer.
  Axis(double least, double most, Scale scale, double begin, double end);

  // In pixels. What lies beyond the ends is at them; so is NaN, at the first.
  double at(double value) const;
  struct Tick {
    double value;
    std::string text;  // with the digits that tell ticks from each other: "0.25", "20k"
  };
  // Round values within the ends: on a linear axis with `most` steps between them at most, on a
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
