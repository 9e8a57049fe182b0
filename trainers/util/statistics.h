// Numbers that describe repeated measurements, and how tables print them.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace belfry {

// The middle value, or the mean of the two in the middle. Throws InvalidArgument for no values.
double median(std::span<const double> values);

// The ratio of measurements taken in pairs, one of each per round. Drift over the rounds cancels
// out.
struct PairedRatio {
  double median = 1;  // of a[i] / b[i]
  double spread = 0;  // the largest less the smallest of these
};

// Throws InvalidArgument unless `a` and `b` have equally many values, at least one.
PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b);

// Writes `digits` digits after the point: rounded(1.236, 2) is "1.24".
std::string rounded(double value, int digits);

// Writes four significant digits. NaN has no sign.
std::string significant(double value);

// "0:07", "12:34", "1:02:03", or "3d 04:05" for days, hours and minutes.
std::string duration_text(double seconds);

// Pads the text with spaces to `width` characters. They come before the text, or after it if
// `width` is negative, as in printf. Longer texts stay as they are.
std::string padded(std::string text, int width);

}  // namespace belfry
