// Texts of gnuplot scripts.
#pragma once
#include <string>
#include <string_view>

#include "belfry/framework/base/cat.h"

namespace belfry {

// A string of a script. Control characters become '?', as they would end it or its line.
inline std::string gnuplot_string(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 || byte == 0x7f ? '?' : c;
    if (c == '\'') quoted += c;
  }
  return quoted + "'";
}

// A block of data that plots call `name`, which begins with "$". Rows end with "\n", and their
// columns are divided by tabs.
inline std::string gnuplot_data(std::string_view name, std::string_view rows) {
  return cat(name, " << END_OF_DATA\n", rows, "END_OF_DATA\n");
}

}  // namespace belfry
