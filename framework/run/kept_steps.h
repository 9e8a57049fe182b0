// The steps that a session keeps: those that users hold, and the last used ones of Session::run.
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

// Who holds a step: the user, whom prepare() has given it, so that it is kept until the session
// ends; or nobody, so that it may be dropped.
enum class Holder { kNobody, kUser };

class KeptSteps {
 public:
  struct Entry {
    std::vector<Fetch> fetches;
    std::vector<FeedType> feeds;
    std::shared_ptr<CompiledStep> step;  // who runs it has a share
    Holder holder = Holder::kNobody;
    std::int64_t used = 0;  // how many were wanted before it was wanted last
  };
  using Entries = std::map<std::string, Entry>;  // by fetches, feeds and options

  // At most `most` that nobody holds.
  KeptSteps(int most, Runtime& runtime) : most_(most), runtime_(runtime) {}

  const Entries& entries() const { return entries_; }
  // The step for these, if it is kept. A user who asks for it holds it from then on.
  std::shared_ptr<CompiledStep> find(std::span<const Fetch> fetches,
                                     std::span<const FeedType> feeds, const PrepareOptions& options,
                                     Holder holder);
  void add(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
           const PrepareOptions& options, Holder holder, std::shared_ptr<CompiledStep> step);

  // Drops idle steps until there is room for another one that nobody holds, if it can.
  void make_room();
  // Drops the one that was used longest ago of those that nobody holds or runs; false if there is
  // none.
  bool drop_idle();
  // Waits until a step that nobody holds is used no more; false if none is used.
  bool await_idle() const;

 private:
  void erase(Entries::iterator entry);

  const int most_;
  Runtime& runtime_;
  Entries entries_;
  std::int64_t uses_ = 0;
};

}  // namespace belfry
