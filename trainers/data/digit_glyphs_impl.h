// The shapes of the generated digits.
#pragma once
#include <array>
#include <vector>

namespace belfry::data {

inline constexpr int kDigitClasses = 10;

// Glyphs live in a box of height 1 around the origin, y pointing down.
struct GlyphPoint {
  float x, y;
};
using Stroke = std::vector<GlyphPoint>;  // a polyline of at least two points
using Glyph = std::vector<Stroke>;

// The two or three forms in which each class is written.
const std::array<std::vector<Glyph>, kDigitClasses>& digit_glyphs();

}  // namespace belfry::data
