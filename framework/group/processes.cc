#include "belfry/framework/group/processes.h"

#include <utility>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/threads.h"

namespace belfry {
namespace {

// How often an idle thread polls a group that must be polled, or looks after one that has failed.
constexpr std::chrono::milliseconds kIdleBeat{50};

// Wraps a function as work that ends at once.
class Call final : public Processes::Work {
 public:
  explicit Call(const std::function<void(FailureDetector&)>& what) : what_(what) {}
  Progress advance(FailureDetector& group) override {
    what_(group);
    return Progress::kEnded;
  }

 private:
  const std::function<void(FailureDetector&)>& what_;
};

int per_host(const std::vector<std::string>& hosts) {
  const auto size = hosts.size();
  std::size_t first = 1;  // ranks of the first host
  while (first < size && hosts[first] == hosts[0]) ++first;
  for (std::size_t r = 1; r < size; ++r)
    if ((hosts[r] == hosts[r - 1]) == (r % first == 0)) return 1;
  return size % first == 0 ? static_cast<int>(first) : 1;
}

}  // namespace

Processes::Processes(std::function<std::unique_ptr<ProcessGroup>()> open, WatchOptions watch)
    : open_(std::move(open)), watch_(watch) {
  thread_ = start_thread({"the messages between processes", "let it start one more thread"},
                         [this](std::stop_token stop) { serve(std::move(stop)); });
  call([this](ProcessGroup& group) {
    for (int r = 0; r < group.size(); ++r) hosts_.push_back(group.host(r));
    place_ = {group.rank(), group.size(), per_host(hosts_)};
    transport_ = group.transport();
  });
}

Processes::~Processes() {
  thread_.request_stop();
  const std::lock_guard lock(mutex_);
  wake_thread();
}

// Under the mutex.
void Processes::wake_thread() {
  changed_.notify_all();
  if (waiting_) waiting_->wake();
}

void Processes::begin(Work& work) {
  const std::lock_guard lock(mutex_);
  require<InternalError>(work_ == nullptr, "the processes already have work");
  work_ = &work;
  error_ = nullptr;
  {
    const std::lock_guard telling(telling_);
    told_ = &work;
  }
  wake_thread();
}

void Processes::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_ == nullptr; });
  {
    const std::lock_guard telling(telling_);
    told_ = nullptr;
  }
  if (const std::exception_ptr error = std::exchange(error_, nullptr))
    std::rethrow_exception(error);
}

void Processes::fetch(std::uint64_t key, std::uint64_t runs,
                      std::span<const std::span<std::byte>> parts) {
  call([&](ProcessGroup& group) { fetch_parts(group, key, runs, parts); });
}

std::vector<std::string> Processes::gather(const std::string& own) {
  std::vector<std::string> all;
  const std::vector<std::uint64_t> unwanted = parts_.withdrawn();  // as all have who come here
  call([&](ProcessGroup& group) { all = belfry::gather(group, own); });
  parts_.forget(unwanted);
  return all;
}

std::vector<std::string> Processes::collect(const std::string& own) {
  std::vector<std::string> all;
  call([&](ProcessGroup& group) { all = belfry::collect(group, own); });
  return all;
}

std::vector<ClockOffset> Processes::clock_offsets() {
  std::vector<ClockOffset> offsets;
  call([&](ProcessGroup& group) { offsets = belfry::clock_offsets(group); });
  return offsets;
}

void Processes::end_others(const ErrorFields& error) {
  call([&](FailureDetector& group) { group.end_others(error); });
}

void Processes::end_others_in(std::chrono::milliseconds most, const ErrorFields& error) {
  std::unique_lock lock(mutex_);
  ending_ = error;
  is_ending_ = true;
  wake_thread();
  changed_.wait_for(lock, most, [&] { return !ending_; });
}

bool Processes::has_work() const {
  const std::lock_guard lock(mutex_);
  return work_ != nullptr;
}

void Processes::call(const std::function<void(FailureDetector&)>& what) {
  Call work(what);
  begin(work);
  wait();
}

void Processes::serve(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!group_) changed_.wait(lock, stop, [&] { return work_ != nullptr || ending_; });
    const bool wanted = work_ != nullptr;
    lock.unlock();
    end_others_if_asked();
    if (!wanted) {
      rest();
      lock.lock();
      continue;
    }
    std::exception_ptr error;
    try {
      run(*work_);
    } catch (...) {
      error = std::current_exception();
      if (group_) group_->fail(error);  // its messages may be under way, and its memory soon gone
    }
    lock.lock();
    error_ = error;
    work_ = nullptr;
    changed_.notify_all();
  }
  waiting_ = nullptr;
  lock.unlock();
  if (group_ && group_->needs_memory()) static_cast<void>(group_.release());
  group_.reset();
}

// Without work: until there is some, or until the next beat.
void Processes::rest() {
  if (!group_) return;
  group_->beat();
  abandon_in_time();
  using Clock = std::chrono::steady_clock;
  group_->wait(group_->failure() ? Clock::now() + kIdleBeat : Clock::time_point::max(), kIdleBeat);
}

// Work under way sees that the group has failed.
void Processes::end_others_if_asked() {
  if (!is_ending_) return;
  std::unique_lock lock(mutex_);
  const ErrorFields error = ending_.value_or(ErrorFields{});
  lock.unlock();
  if (group_) group_->end_others(error);
  lock.lock();
  ending_.reset();
  is_ending_ = false;
  changed_.notify_all();
}

// Other threads see the failure when they next need the group, and end. A thread that hangs or
// computes for long would keep this process alive when all others are gone.
void Processes::abandon_in_time() {
  if (!watch_.abandon || !group_ || !group_->failure()) return;
  const auto now = std::chrono::steady_clock::now();
  if (!failed_at_) failed_at_ = patient_since_ = now;
  // A checkpoint being written would be lost.
  if (now - *failed_at_ < kMostUnfinished && UnfinishedWrite::any()) patient_since_ = now;
  if (now - patient_since_ < watch_.patience) return;
  patient_since_ = std::chrono::steady_clock::time_point::max();  // once
  try {
    std::rethrow_exception(group_->failure());
  } catch (const std::exception& error) {
    watch_.abandon(*group_, error);
  }
}

void Processes::run(Work& work) {
  if (!group_) {
    group_ = std::make_unique<FailureDetector>(
        open_(), watch_,
        [this](std::uint64_t key, std::uint64_t runs) { return parts_.find(key, runs); });
    group_->heartbeats().tell([this] {
      const std::lock_guard telling(telling_);
      return told_ ? told_->doing() : std::string();
    });
    // A call that waits for messages sees then that the group has failed.
    group_->at_each_beat([this] {
      if (!group_) return;  // it leaves
      mutual_wait_ = group_->mutual_wait();
      end_others_if_asked();
    });
    const std::lock_guard lock(mutex_);
    waiting_ = group_.get();
  }
  using Clock = std::chrono::steady_clock;
  Backoff backoff;
  for (;;) {
    end_others_if_asked();
    switch (work.advance(*group_)) {
      case Work::Progress::kEnded: group_->end_wait(); return;
      case Work::Progress::kSome: backoff.moved(); break;
      case Work::Progress::kNone: {
        group_->beat();
        const std::chrono::nanoseconds nap = backoff.next();
        group_->wait(Clock::now() + nap, nap);
        break;
      }
      case Work::Progress::kMessages: backoff.wait(*group_); break;
      case Work::Progress::kIdle:
        group_->end_wait();
        group_->beat();  // a failure would come with no further wake
        if (!group_->failure()) group_->wait(Clock::time_point::max(), kIdleBeat);
        backoff.moved();
        break;
    }
  }
}

}  // namespace belfry
