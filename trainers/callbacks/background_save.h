// Saves a training run while it goes on.
#pragma once
#include <functional>
#include <future>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/checkpoint.h"

namespace belfry {

class Trainer;

// One save at a time. All that saves a run as it goes does it through this.
class BackgroundSave {
 public:
  using Write = std::function<void(const CheckpointSnapshot&)>;

  BackgroundSave() = default;
  // What was begun is written all the same, also where training ends with an exception.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Copies the state between two steps, as snapshot_training() does with `more`, and has `write`
  // write it on a thread. What was begun before has to be settled. Throws as snapshot_training().
  void begin(Trainer& trainer, const Json& more, Write write);
  // Whether there is something to settle that does not have to be waited for.
  bool is_written() const;
  // Waits for what was begun since the last call, and throws what `write` threw. Returns whether
  // there was anything.
  bool settle();

 private:
  std::future<void> writing_;
};

}  // namespace belfry
