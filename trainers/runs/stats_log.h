// stats.jsonl of a run directory: the course of the training, for programs.
//   {"step":12,"epoch":1,"loss":0.25,"accuracy":0.9,"learning_rate":0.001,
//    "examples_per_second":5123.4,"seconds":1.25}
//   {"step":40,"epoch":1,"validation_loss":0.2,"validation_accuracy":0.93}
// A line for each step, and one behind each evaluation. Steps and epochs count from 1. Numbers have
// 17 significant digits; one that is not finite is "nan", "inf" or "-inf".
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"

namespace belfry {

// Writes each line when its step is complete, by one call. Stands before what saves, so that a
// checkpoint of a step knows where the line of this step ends.
class StatsLog final : public Callback {
 public:
  StatsLog(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  // Before training: goes on behind the first `bytes` of the file, and cuts off the rest. If there
  // are fewer, as the machine died, it warns and goes on behind those.
  void go_on(std::uint64_t bytes);
  // Where the next line begins, in bytes.
  std::uint64_t bytes() const { return bytes_; }
  // What was written outlives the machine.
  void sync();

  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;

 private:
  void write(std::string line);

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::uint64_t bytes_ = 0;
  std::string waiting_;  // what could not be written
};

}  // namespace belfry
