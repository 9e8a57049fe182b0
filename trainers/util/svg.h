// Parts of SVG documents that charts share.
#pragma once
#include <string>
#include <string_view>

namespace belfry::svg {

// Characters that are not printable ASCII become '?'.
std::string escaped(std::string_view text);
// The number with one digit after the point.
std::string pixels(double value);

// A whole document over white, with text of 12 pixels.
std::string document(double width, double height, std::string_view content);

// Elements, each on a line of its own. `anchor` is start, middle or end.
std::string text(double x, double y, std::string_view anchor, std::string_view content);
std::string line(double x1, double y1, double x2, double y2, std::string_view color);

}  // namespace belfry::svg
