// Checks SVG documents.
#pragma once
#include <cstddef>
#include <regex>
#include <string>
#include <vector>

namespace belfry {

// How often `text` contains `part`.
inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

// Why the elements, attributes and text of `xml` are not well formed; "" if they are.
inline std::string xml_error(const std::string& xml) {
  static const std::regex tag(
      R"re(<\?xml [^<>?]*\?>|<(/?)([A-Za-z]+)((?: [A-Za-z0-9:-]+="[^"<&]*")*)(/?)>)re");
  static const std::regex plain(R"((?:[^<>&]|&(?:amp|lt|gt|quot);)*)");
  std::vector<std::string> open;
  std::size_t roots = 0, from = 0;
  for (std::sregex_iterator found(xml.begin(), xml.end(), tag), end; found != end; ++found) {
    const std::smatch& match = *found;
    const auto at = static_cast<std::size_t>(match.position());
    if (!std::regex_match(xml.substr(from, at - from), plain)) return "text before " + match.str();
    from = at + match.str().size();
    if (match[2].length() == 0) continue;  // the declaration
    if (open.empty() && match[1].length() == 0 && ++roots > 1) return "two roots";
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != match[2]) return "unexpected " + match.str();
      open.pop_back();
    } else if (match[4].length() == 0) {
      open.push_back(match[2]);
    }
  }
  if (!std::regex_match(xml.substr(from), plain)) return "text at the end";
  return open.empty() ? "" : "open: " + open.back();
}

}  // namespace belfry
