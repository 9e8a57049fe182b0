#include "belfry/trainers/commands/restarts.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/base/require.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/runs/find_in_memory.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

// How many words, from `at` on, are the flag `name`: 1 or 2; 0 if it is another flag.
std::size_t words_of_flag(std::span<const std::string> command, std::size_t at,
                          std::string_view name) {
  std::string word = command[at];
  const std::size_t equals = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), '-', '_');
  if (std::string_view(word).substr(0, equals) != cat("__", name)) return 0;
  return equals < word.size() || at + 1 == command.size() ? 1 : 2;
}

}  // namespace

std::optional<std::string> flag_in(std::span<const std::string> command, const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 1; i < command.size(); ++i)
    if (const std::size_t words = words_of_flag(command, i, name); words == 2)
      value = command[++i];
    else if (words == 1)
      value = command[i].substr(std::min(command[i].size(), name.size() + 3));
  return value;
}

std::vector<std::string> without_flags(std::span<const std::string> command,
                                       std::span<const std::string> names) {
  std::vector<std::string> rest(command.begin(), command.begin() + 1);
  for (std::size_t i = 1; i < command.size();) {
    std::size_t words = 0;
    for (const std::string& name : names) words = std::max(words, words_of_flag(command, i, name));
    if (words == 0) rest.push_back(command[i]);
    i += std::max<std::size_t>(1, words);
  }
  return rest;
}

Restarts::Restarts(std::vector<std::string> command, int processes, int least)
    : command_(std::move(command)),
      all_(processes),
      least_(least),
      run_dir_(flag_in(command_, "run_dir").value_or("")),
      before_(find_saved()),
      processes_(processes) {
  require<FlagError>(least == 0 || !run_dir_.empty(), "--min_processes=", least,
                     " resumes from a checkpoint; let the program keep them by --run_dir=DIR");
  require<FlagError>(least == 0 || flag_in(command_, "devices"), "--min_processes=", least,
                     " has to know how many devices a process has; say so by --devices=LIST");
}

Start Restarts::next() {
  const std::optional<Saved> found = find_saved();
  saved_ = found != before_ ? found : std::nullopt;
  const bool was_whole = processes_ == all_;
  processes_ = all_;
  Start start{all_, going_on(), ""};
  if (least_ == 0 || !was_whole) return start;
  if (!saved_) {
    start.why_as_many = "no checkpoint says yet how fewer could continue";
    return start;
  }
  const int count = fewer(*saved_);
  if (count == 0) {
    start.why_as_many =
        cat("no number of processes from ", least_, " to ", all_ - 1, " has devices that divide ",
            saved_->shards, " shards and the global batch of ", saved_->global_batch,
            " to equal bits; for these the numbers of shards and of devices must be powers of two");
    return start;
  }
  static const std::string kBatch[] = {"batch_size", "global_batch_size", "shards"};
  start.command = without_flags(start.command, kBatch);
  start.command.push_back(cat("--global_batch_size=", saved_->global_batch));
  start.command.push_back(cat("--shards=", saved_->shards));
  start.why_as_many =
      cat("the largest number below ", all_, " whose devices divide ", saved_->shards, " shards");
  start.processes = processes_ = count;
  return start;
}

std::optional<std::int64_t> Restarts::saved_step() const {
  return saved_ ? std::optional(saved_->step) : std::nullopt;
}

// The newest save of the run in memory, or else on disk; "" for none.
std::string Restarts::find_newest() const {
  FileSystem& files = local_file_system();
  if (run_dir_.empty()) return "";
  const std::string memory = find_in_memory(nullptr, run_dir_);
  if (!memory.empty()) return memory;
  return checkpoints_in(files, run_dir_).empty() ? "" : latest_checkpoint_of(run_dir_);
}

std::optional<Restarts::Saved> Restarts::find_saved() const {
  const std::string path = find_newest();
  if (path.empty()) return {};
  const std::optional<CheckpointInfo> info = find_training(path);
  if (!info) return {};
  return Saved{.path = local_file_system().resolve(path),
               .modified = local_file_system().modified(path),
               .step = position_in(*info).steps,
               .global_batch = saved_integer(*info, "global_batch"),
               .shards = saved_integer(*info, "shards")};
}

// A restarted run resumes from its own checkpoint, even if its first start was to resume from
// elsewhere or to begin anew. Without a checkpoint, it replaces what the first start has left.
std::vector<std::string> Restarts::going_on() const {
  static const std::string kResume[] = {"resume"};
  if (run_dir_.empty() || flag_in(command_, "resume").value_or("auto") == "auto") return command_;
  std::vector<std::string> command = saved_ ? without_flags(command_, kResume) : command_;
  command.emplace_back(saved_ ? "--resume=auto" : "--overwrite");
  return command;
}

// The bits are equal for powers of two: the sum over the shards of a device is then a node of the
// tree over all shards.
int Restarts::fewer(const Saved& saved) const {
  const std::int64_t each = std::ssize(parse_devices(*flag_in(command_, "devices")));
  const auto has_equal_bits = [&](std::int64_t devices) {
    return std::has_single_bit(static_cast<std::uint64_t>(devices)) &&
           saved.shards % devices == 0 && saved.global_batch % devices == 0;
  };
  if (!std::has_single_bit(static_cast<std::uint64_t>(saved.shards))) return 0;
  if (!has_equal_bits(all_ * each)) return 0;
  for (int count = all_ - 1; count >= least_; --count)
    if (has_equal_bits(count * each)) return count;
  return 0;
}

}  // namespace belfry
