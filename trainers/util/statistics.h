// Numbers that describe repeated measurements, and how tables print them.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace belfry {

// The middle value, or the mean of the two in the middle. Throws InvalidArgument for no values.
double median(std::span<const double> values);

// Measurements that were taken in pairs, one of each per round: what drifts over rounds cancels.
struct PairedRatio {
  double median = 1;  // of a[i] / b[i]
  double spread = 0;  // their largest less their smallest
};

// Throws InvalidArgument unless there are equally many of both, at least one.
PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b);

// With so many digits after the point: rounded(1.236, 2) is "1.24".
std::string rounded(double value, int digits);

// With four significant digits; NaN has no sign.
std::string significant(double value);

// "0:07", "12:34", "1:02:03" or "3d 04:05", which are days, hours and minutes.
std::string duration_text(double seconds);

// With spaces up to so many characters: before the text, behind it if `width` is negative, as
// printf does. Longer texts stay as they are.
std::string padded(std::string text, int width);

}  // namespace belfry
