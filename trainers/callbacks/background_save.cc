#include "belfry/trainers/callbacks/background_save.h"

#include <chrono>
#include <utility>

#include "belfry/trainers/core/training_checkpoint.h"

namespace belfry {

BackgroundSave::~BackgroundSave() {
  if (writing_.valid()) writing_.wait();
}

void BackgroundSave::begin(Trainer& trainer, const JsonValue& more, Write write) {
  writing_ = std::async(std::launch::async, [snapshot = snapshot_training(trainer, more),
                                             write = std::move(write)] { write(snapshot); });
}

bool BackgroundSave::is_written() const {
  return writing_.valid() &&
         writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool BackgroundSave::settle() {
  if (!writing_.valid()) return false;
  writing_.get();
  return true;
}

}  // namespace belfry
