// Times in messages about processes.
#pragma once
#include <chrono>
#include <cmath>
#include <string>

#include "belfry/framework/base/text.h"

namespace belfry {

// "3.2 s".
inline std::string seconds_text(std::chrono::steady_clock::duration time) {
  return detail::cat(std::round(std::chrono::duration<double>(time).count() * 10) / 10, " s");
}

}  // namespace belfry
