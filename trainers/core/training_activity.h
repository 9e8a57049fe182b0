// Where a training is, from its setup to its end, for a watch on another thread and for errors.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <typeinfo>

namespace belfry {

class TrainingActivity {
 public:
  enum class What : std::uint8_t {
    kNothing,  // train() has not begun, or is between the others
    kSetup,    // the program does what `hook` says before there is a step: "reading the data"
    kCallback,
    kInput,   // waits for a batch
    kStep,    // runs a step
    kTowers,  // waits for towers that run free
    kEnd,     // waits for the threads that read data
    kEnded,   // train() has returned or thrown
  };
  // A place in train(). `callback` and `hook` say which function of which class, if it is a
  // callback. `step` counts from 1; it is the running step, or the next one.
  struct Place {
    What what = What::kNothing;
    const std::type_info* callback = nullptr;
    const char* hook = "";
    std::int64_t step = 1;

    // "step 12", "the callback MyCallback::after_step at step 12".
    std::string str() const;
  };

  // For the thread of train().
  void enter(const Place& place) {
    what_.store(place.what, std::memory_order_relaxed);
    callback_.store(place.callback, std::memory_order_relaxed);
    hook_.store(place.hook, std::memory_order_relaxed);
    step_.store(place.step, std::memory_order_relaxed);
    moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Any thread may call these: the number of changes of the place so far, and the place. A caller
  // that sees the same number before and after knows that the place belongs to it.
  std::uint64_t moves() const { return moves_.load(std::memory_order_acquire); }
  Place place() const {
    return {what_.load(std::memory_order_relaxed), callback_.load(std::memory_order_relaxed),
            hook_.load(std::memory_order_relaxed), step_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<What> what_{What::kNothing};
  std::atomic<const std::type_info*> callback_{nullptr};
  std::atomic<const char*> hook_{""};
  std::atomic<std::int64_t> step_{1};
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace belfry
