#include "belfry/trainers/callbacks/background_save.h"

#include <chrono>
#include <memory>
#include <utility>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/threads.h"

namespace belfry {

BackgroundSave::~BackgroundSave() = default;  // waits for the thread

void BackgroundSave::begin(CheckpointSnapshot copy, Write write) {
  auto task = std::make_shared<std::packaged_task<void()>>(
      [snapshot = std::move(copy), write = std::move(write),
       unfinished = std::make_unique<UnfinishedWrite>()]() mutable {
        const auto until_written = std::move(unfinished);
        write(snapshot);
      });
  writing_ = task->get_future();
  try {
    thread_ = start_thread({"a checkpoint", "let it start one more thread"}, [task] { (*task)(); });
  } catch (const DeviceError& error) {
    log_warning(error.what(), "; training waits until the checkpoint is written");
    (*task)();
  }
}

bool BackgroundSave::is_under_way() const { return writing_.valid() && !is_written(); }

bool BackgroundSave::is_written() const {
  return writing_.valid() &&
         writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool BackgroundSave::settle() {
  if (!writing_.valid()) return false;
  if (thread_.joinable()) thread_.join();  // and so the copy of the state is gone
  writing_.get();
  return true;
}

}  // namespace belfry
