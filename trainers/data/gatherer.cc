#include "belfry/trainers/data/gatherer.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"

namespace belfry {

namespace {

// The workers that have samples to gather.
int useful_data_workers(int workers, const std::string& what, std::int64_t most_samples) {
  require(workers >= 0, "data workers: ", workers, ", where there must be at least 0");
  const int most = std::max(workers, 1);
  const auto useful = static_cast<int>(std::clamp<std::int64_t>(most_samples, 1, most));
  if (useful < workers && first_time_logged(cat(workers, " data workers, ", useful, " useful")))
    log_warning(workers, " threads were asked for to gather a batch (", the_option("data_workers"),
                "), but ", what, " takes ", most_samples, " samples at a time; ", useful,
                " are used");
  return useful;
}

}  // namespace

std::string gather_name(const Dataset& dataset) {
  try {
    if (const std::string said = dataset.describe(); !said.empty())
      return cat("gather() of '", said, "'");
  } catch (...) {  // the class has a name, too
  }
  return cat("gather() of ", class_name(typeid(dataset)));
}

std::optional<Activity::Clock::time_point> GatherActivity::stuck_since(Clock::time_point now) {
  const std::uint64_t turns = turns_.load(std::memory_order_acquire);
  if (turns % 2 == 0) return std::nullopt;
  return last_.look(turns << 32 ^ parts_.load(std::memory_order_relaxed), now);
}

ErrorOrigin GatherActivity::describe(Clock::time_point now) const {
  return {.what = cat(name_, " has taken ", seconds_text(last_.at(), now))};
}

Gatherer::Gatherer(const Dataset& dataset, int asked, const std::string& what,
                   std::int64_t most_samples)
    : dataset_(dataset), activity_(gather_name(dataset)) {
  const int workers = useful_data_workers(asked, what, most_samples);
  for (const Dataset::Field& field : dataset.signature())
    bytes_.push_back(static_cast<std::size_t>(field.shape.elements()) * size_of(field.dtype));
  places_.assign(static_cast<std::size_t>(workers), std::vector<std::byte*>(bytes_.size()));
  for (std::size_t i = 1; i < places_.size(); ++i)
    helpers_.push_back(start_thread({cat("data worker ", i + 1, " of ", workers, ", for ", what),
                                     cat("use fewer (", the_option("data_workers"), ")")},
                                    [this, i](std::stop_token stop) { help(std::move(stop), i); }));
}

Gatherer::~Gatherer() = default;

void Gatherer::gather(const std::optional<DataPass>& pass, std::span<const std::int64_t> indices,
                      std::span<std::byte* const> out) {
  // Several parts a worker, as samples may take different times.
  constexpr std::size_t kPartsPerWorker = 4;
  const Job job{pass, indices, out,
                std::max<std::size_t>(1, indices.size() / (kPartsPerWorker * places_.size()))};
  activity_.begin();
  try {
    if (helpers_.empty() || indices.size() < 2)
      copy(job, 0, indices.size(), places_[0]);
    else
      share(job);
  } catch (...) {
    activity_.end();
    throw;
  }
  activity_.end();
}

// Takes parts of the job, as all workers do, and waits for the others.
void Gatherer::share(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_ = 0;
    working_ = static_cast<int>(helpers_.size());
    ++jobs_;
    changed_.notify_all();
  }
  work(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return working_ == 0; });
  if (const std::exception_ptr failure = std::exchange(failure_, nullptr))
    std::rethrow_exception(failure);
}

void Gatherer::help(std::stop_token stop, std::size_t worker) {
  for (std::int64_t done = 0;; ++done) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return jobs_ > done; })) return;
    }
    work(worker);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) changed_.notify_all();
  }
}

void Gatherer::work(std::size_t worker) {
  for (;;) {
    std::size_t first, count;
    {
      const std::lock_guard lock(mutex_);
      first = next_;
      count = std::min(job_.part, job_.indices.size() - first);
      next_ += count;
    }
    if (count == 0) return;
    try {
      copy(job_, first, count, places_[worker]);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ && failed_at_ < first) continue;
      failure_ = std::current_exception();
      failed_at_ = first;
    }
  }
}

void Gatherer::copy(const Job& job, std::size_t first, std::size_t count,
                    std::span<std::byte*> places) {
  for (std::size_t f = 0; f < places.size(); ++f) places[f] = job.out[f] + first * bytes_[f];
  const std::span<const std::int64_t> indices = job.indices.subspan(first, count);
  try {
    if (job.pass)
      dataset_.gather_training(*job.pass, indices, places);
    else
      dataset_.gather(indices, places);
  } catch (const Error&) {
    rethrow_from({.what = activity_.name(), .is_told = is_of_belfry(typeid(dataset_))});
  } catch (...) {
    rethrow_from({.what = activity_.name()});
  }
  activity_.move();
}

}  // namespace belfry
