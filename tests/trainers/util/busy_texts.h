#pragma once
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/threads.h"

namespace belfry {

// The text that each Busy which began during f() would have logged: "still <this>".
template <class F>
std::vector<std::string> busy_texts(const F& f) {
  constexpr std::string_view kSays = "saying that a program is still ";
  std::mutex mutex;
  std::vector<std::string> all;
  set_thread_hook([&](const ThreadUse& use) {
    const std::lock_guard lock(mutex);
    if (use.what.starts_with(kSays)) all.push_back(use.what.substr(kSays.size()));
  });
  f();
  set_thread_hook({});
  return all;
}

}  // namespace belfry
