// The steps that a session keeps: those that users hold, and the last used steps of Session::run.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/run/runtime.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// Who holds a step. If prepare() has given it to the user, it stays until the session ends. If
// nobody holds it, the session may drop it.
enum class Holder { kNobody, kUser };

class KeptSteps {
 public:
  struct Entry {
    std::vector<Fetch> fetches;
    std::vector<FeedType> feeds;
    std::shared_ptr<CompiledStep> step;  // a thread that runs it has a share
    Holder holder = Holder::kNobody;
    std::int64_t used = 0;  // the number of its last use, counted over all steps
  };
  using Entries = std::map<std::string, Entry>;  // by fetches, feeds and options

  // Keeps at most `most` steps that nobody holds.
  KeptSteps(int most, Runtime& runtime) : most_(most), runtime_(runtime) {}

  const Entries& entries() const { return entries_; }
  // The kept step for these arguments, or null. A user who gets it holds it from then on.
  std::shared_ptr<CompiledStep> find(std::span<const Fetch> fetches,
                                     std::span<const FeedType> feeds, const PrepareOptions& options,
                                     Holder holder);
  void add(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
           const PrepareOptions& options, Holder holder, std::shared_ptr<CompiledStep> step);

  // Drops idle steps, if it can, until there is room for one more that nobody holds.
  void make_room();
  // Of the steps that nobody holds or runs, drops the one used longest ago. False if there is none.
  bool drop_idle();
  // Waits until somebody stops using a step that nobody holds. False if no such step is in use.
  bool await_idle() const;

 private:
  void erase(Entries::iterator entry);

  const int most_;
  Runtime& runtime_;
  Entries entries_;
  std::int64_t uses_ = 0;
};

}  // namespace belfry
