#include "belfry/trainers/util/svg.h"

#include <cstdio>

#include "belfry/framework/base/text.h"

namespace belfry::svg {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c < ' ' || c > '~' ? '?' : c;
    }
  }
  return out;
}

std::string pixels(double value) {
  char text[400];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string document(double width, double height, std::string_view content) {
  const std::string w = pixels(width), h = pixels(height);
  return cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", w, "\" height=\"", h,
             "\" viewBox=\"0 0 ", w, " ", h, "\" font-family=\"sans-serif\" font-size=\"12\">\n",
             "  <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", content, "</svg>\n");
}

std::string text(double x, double y, std::string_view anchor, std::string_view content) {
  return cat("  <text x=\"", pixels(x), "\" y=\"", pixels(y), "\" text-anchor=\"", anchor, "\">",
             escaped(content), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, std::string_view color) {
  return cat("  <line x1=\"", pixels(x1), "\" y1=\"", pixels(y1), "\" x2=\"", pixels(x2),
             "\" y2=\"", pixels(y2), "\" stroke=\"", color, "\"/>\n");
}

}  // namespace belfry::svg
