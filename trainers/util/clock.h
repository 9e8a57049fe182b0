// The clock of steps and runs.
#pragma once
#include <chrono>

namespace belfry {

// Seconds that never go back. Only differences mean anything.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace belfry
