// Saves a training run while it continues.
#pragma once
#include <functional>
#include <future>
#include <thread>

#include "belfry/framework/checkpoint/checkpoint.h"

namespace belfry {

// Saves a training run one save at a time. All saves during a run use it.
class BackgroundSave {
 public:
  using Write = std::function<void(const CheckpointSnapshot&)>;

  BackgroundSave() = default;
  // A save that was begun is written, even if training ends with an exception, or another process
  // is lost (UnfinishedWrite).
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // `write` writes the copy on another thread, or on this one if the system has no thread left.
  // Call settle() for an earlier save first.
  void begin(CheckpointSnapshot snapshot, Write write);
  // Whether a save is being written.
  bool is_under_way() const;
  // Whether a save can be settled without waiting.
  bool is_written() const;
  // Waits for the save that was begun since the last call, and throws what `write` threw. Returns
  // whether there was one.
  bool settle();

 private:
  std::future<void> writing_;  // the outcome of the save that was begun
  std::jthread thread_;
};

}  // namespace belfry
