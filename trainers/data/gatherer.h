// Gathers samples on several threads.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Threads that decode and copy samples of one data set, which must outlive it. Results do not
// depend on the number of threads, as each sample is a function of its index and the pass.
class Gatherer {
 public:
  // The caller of gather() is one of `workers`; the others are started here, for `what` ("the input
  // of all towers"). Throws InvalidArgument unless there is one, and DeviceError if one cannot be
  // started.
  Gatherer(const Dataset& dataset, int workers, const std::string& what);
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // As Dataset::gather_training(), or gather() without a pass. If several parts fail, throws the
  // error of the first one. For one thread at a time.
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
  void copy(const Job& job, std::size_t first, std::size_t count,
            std::span<std::byte*> places) const;

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
  std::vector<std::jthread> helpers_;  // last: they start when all else is ready
};

}  // namespace belfry
