#include "belfry/trainers/util/busy.h"

#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"

namespace belfry {

Busy::Busy(std::string what, std::chrono::milliseconds every)
    : what_(std::move(what)), every_(every) {
  try {
    thread_ = start_thread(
        {.what = cat("saying that a program is still ", what_), .remedy = "use fewer threads"},
        [this](const std::stop_token& stop) { report(stop); });
  } catch (const Error&) {  // no thread: the work continues in silence
  }
}

Busy::~Busy() {
  thread_.request_stop();
  ends_.notify_all();
}

void Busy::report(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    // The result does not show whether a stop was requested: libstdc++ also returns false if it
    // sees the request early.
    ends_.wait_for(lock, stop, every_, [&] { return stop.stop_requested(); });
    if (stop.stop_requested()) return;
    const auto busy = std::chrono::steady_clock::now() - since_;
    log_info("still ", what_, ", for ",
             std::chrono::duration_cast<std::chrono::seconds>(busy).count(), " s");
  }
}

}  // namespace belfry
