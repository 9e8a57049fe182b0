// Gathers samples on several threads.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "belfry/framework/base/activity.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// What a data set is called in messages: "gather() of 'CIFAR-10, 50000 images'". One that cannot
// describe itself has the name of its class.
std::string gather_name(const Dataset& dataset);

// Shows watchdogs that a data set is gathering samples.
class GatherActivity final : public Activity {
 public:
  explicit GatherActivity(std::string name) : name_(std::move(name)) {}

  // Around the calls of a batch, and after each of them.
  void begin() { turns_.fetch_add(1, std::memory_order_release); }
  void end() { turns_.fetch_add(1, std::memory_order_release); }
  void move() { parts_.fetch_add(1, std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

  Kind kind() const override { return Kind::kInput; }
  std::optional<Clock::time_point> stuck_since(Clock::time_point now) override;
  ErrorOrigin describe(Clock::time_point now) const override;

 private:
  const std::string name_;
  std::atomic<std::uint64_t> turns_{0}, parts_{0};  // turns_: odd while a batch is gathered
  LastChange last_;                                 // as the watch saw it
  ShownActivity shown_{*this};
};

// Threads that decode and copy samples of one data set, which must outlive it. Results do not
// depend on the number of threads, as each sample is a function of its index and the pass.
class Gatherer {
 public:
  // The caller of gather() is one of `workers`, even if they are 0; the others are started here,
  // for `what` ("the input of all towers"). Throws InvalidArgument for fewer than 0, and
  // DeviceError if one cannot be started. `most_samples`: of a call of gather(); more workers would
  // have nothing to do, so they are not started, and a warning says so.
  Gatherer(const Dataset& dataset, int workers, const std::string& what,
           std::int64_t most_samples = std::numeric_limits<std::int64_t>::max());
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // As Dataset::gather_training(), or gather() without a pass. If several parts fail, throws the
  // error of the first one, with its origin (base/error_origin.h). For one thread at a time.
  void gather(const std::optional<DataPass>& pass, std::span<const std::int64_t> indices,
              std::span<std::byte* const> out);

 private:
  // The job that all threads work at.
  struct Job {
    std::optional<DataPass> pass;
    std::span<const std::int64_t> indices;
    std::span<std::byte* const> out;
    std::size_t part = 1;  // samples that a worker takes at once
  };

  void help(std::stop_token stop, std::size_t worker);
  void work(std::size_t worker);
  void share(const Job& job);
  void copy(const Job& job, std::size_t first, std::size_t count, std::span<std::byte*> places);

  const Dataset& dataset_;
  std::vector<std::size_t> bytes_;               // of a sample, per field
  std::vector<std::vector<std::byte*>> places_;  // per worker and field: where its part goes
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Job job_;
  std::size_t next_ = 0;       // the first sample of the job that no thread has taken
  std::int64_t jobs_ = 0;      // begun
  int working_ = 0;            // helpers that have not ended the job
  std::size_t failed_at_ = 0;  // the first sample of the part that threw failure_
  std::exception_ptr failure_;
  GatherActivity activity_;
  std::vector<std::jthread> helpers_;  // last: they start when all else is ready
};

}  // namespace belfry
