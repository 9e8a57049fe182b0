// The processes of a run, and the one thread of this process that talks to the others.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "belfry/framework/group/clock_offsets.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/group/group.h"
#include "belfry/framework/group/part_server.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

class Processes {
 public:
  // Work that the thread does piece by piece.
  class Work {
   public:
    // Says when to call again. kSome: at once. kMessages: when messages move; it has polled the
    // group. kIdle: when another thread of this process calls ProcessGroup::wake(). kNone: soon,
    // because nobody announces what it waits for.
    enum class Progress { kNone, kSome, kMessages, kIdle, kEnded };
    virtual ~Work() = default;
    // Does what can be done without waiting. It may be called before its time, at each beat at the
    // latest. Not called again after kEnded, or once it has thrown.
    virtual Progress advance(FailureDetector& group) = 0;
    // What this process is doing, for the others: "computes 'fc0/MatMul'"; empty between two steps.
    // The thread calls it until wait() returns, even after kEnded: more of a step may follow.
    virtual std::string doing() const { return ""; }
  };

  // `open` makes the group, in the thread. Throws what `open` throws. If the group has failed and
  // this object is still alive after watch.patience, the thread calls watch.abandon. Patience
  // starts over at the end of an UnfinishedWrite (framework/base/end_process.h).
  explicit Processes(std::function<std::unique_ptr<ProcessGroup>()> open, WatchOptions watch = {});
  // If nothing has failed, it waits until the other processes destroy theirs, too.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  ProcessPlace place() const { return place_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  const std::string& transport() const { return transport_; }  // ProcessGroup::transport()

  // begin() hands work to the thread. wait() waits until it has ended, and throws what it threw.
  // One work at a time.
  void begin(Work& work);
  void wait();
  // The parts that other processes may fetch() from this one. Withdrawn parts are freed at the end
  // of a later gather(), because all processes withdraw and gather in one order.
  PublishedParts& parts() { return parts_; }
  // A new number per call, for keys. All processes call it in one order, and get the same numbers.
  std::uint64_t next_number() { return next_number_++; }
  // fetch_parts() of part_server.h: gets the parts that the other processes publish under a key,
  // now or later, after that many runs.
  void fetch(std::uint64_t key, std::uint64_t runs, std::span<const std::span<std::byte>> parts);
  // gather() and collect() of group.h, and clock_offsets().
  std::vector<std::string> gather(const std::string& own);
  std::vector<std::string> collect(const std::string& own);
  std::vector<ClockOffset> clock_offsets();
  // Makes the other processes throw this error (throw_reason()). This one can no longer use them.
  void end_others(const ErrorFields& error);
  // The same, for a watch: from any thread, also while there is work, and without an error. Returns
  // when the others have been notified, or after that time.
  void end_others_in(std::chrono::milliseconds most, const ErrorFields& error);
  // Whether there is work, so that this process may be waiting for others. Any thread may ask.
  bool has_work() const;
  // FailureDetector::mutual_wait(), as of the last beat. Any thread may ask.
  std::chrono::milliseconds mutual_wait() const { return mutual_wait_.load(); }

 private:
  void call(const std::function<void(FailureDetector&)>& what);
  void wake_thread();
  void serve(std::stop_token stop);
  void rest();
  void run(Work& work);
  void end_others_if_asked();
  void abandon_in_time();

  std::function<std::unique_ptr<ProcessGroup>()> open_;
  const WatchOptions watch_;
  std::unique_ptr<FailureDetector> group_;                          // the thread's
  std::optional<std::chrono::steady_clock::time_point> failed_at_;  // the thread's, too
  std::chrono::steady_clock::time_point patient_since_;             // and this
  ProcessPlace place_;
  std::vector<std::string> hosts_;
  std::string transport_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  ProcessGroup* waiting_ = nullptr;  // what the thread waits in, once it has a group
  Work* work_ = nullptr;
  std::optional<ErrorFields> ending_;    // why end_others_in() wants the others to end
  std::atomic<bool> is_ending_ = false;  // whether there is such a reason
  std::mutex telling_;
  const Work* told_ = nullptr;  // the work whose doing() is reported to the others
  std::exception_ptr error_;
  PublishedParts parts_;
  std::atomic<std::uint64_t> next_number_{0};
  std::atomic<std::chrono::milliseconds> mutual_wait_{std::chrono::milliseconds(0)};
  std::jthread thread_;
};

}  // namespace belfry
