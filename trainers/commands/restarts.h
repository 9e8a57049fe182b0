// How `belfry run` starts a training again after a failure.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace belfry {

// One start of all processes.
struct Start {
  int processes = 1;
  std::vector<std::string> command;
  std::string why_as_many;  // if these are not all processes, or could not be fewer; else ""
};

class Restarts {
 public:
  // A restart may use fewer processes, but at least `least`; 0: it always uses all. Throws
  // FlagError if `least` needs a run directory or devices that the command does not name.
  Restarts(std::vector<std::string> command, int processes, int least);

  Start first() const { return {all_, command_, ""}; }
  // The start after a failure. It resumes from the checkpoint that the run has saved since first(),
  // or else repeats first(). If the last start had all processes, this one has fewer, if possible:
  // the largest number whose devices divide the shards and the global batch of that checkpoint, so
  // that the bits stay equal. The start after that has all processes again.
  Start next();

  // The step of the checkpoint that next() resumes from; none: it starts anew.
  std::optional<std::int64_t> saved_step() const;

 private:
  // The newest save of the run, in memory or in its directory.
  struct Saved {
    std::string path;
    std::int64_t modified = 0, step = 0, global_batch = 0, shards = 0;
    bool operator==(const Saved&) const = default;
  };

  std::string find_newest() const;
  std::optional<Saved> find_saved() const;
  std::vector<std::string> going_on() const;
  int fewer(const Saved& saved) const;

  const std::vector<std::string> command_;
  const int all_, least_;
  const std::string run_dir_;
  const std::optional<Saved> before_;
  std::optional<Saved> saved_;
  int processes_;  // of the last start
};

// The value of the last flag `name` in a command, "--name=value" or "--name value", with `-` and
// `_` alike; none if there is none.
std::optional<std::string> flag_in(std::span<const std::string> command, const std::string& name);
// The command without these flags and their values.
std::vector<std::string> without_flags(std::span<const std::string> command,
                                       std::span<const std::string> names);

}  // namespace belfry
