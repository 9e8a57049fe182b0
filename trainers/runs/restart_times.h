// How long a restart by `belfry run` has taken, from the failure to the first new step.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// What `belfry run` knows of a restart, for the processes that it starts.
struct RestartMark {
  int number = 1;         // of the restart
  double detection = 0;   // seconds from the failure of a process until all had ended
  double started_at = 0;  // seconds since 1970, when the new processes were started

  // The variable of the environment that has it.
  static constexpr char kVariable[] = "BELFRY_RESTART";
  std::string str() const;
};

// Processes of one machine share this clock.
double seconds_since_1970();

// The newest step in a file of statistics, which a run that was killed may have cut off in a line;
// 0 for none.
std::int64_t newest_step_in(FileSystem& files, const std::string& stats_file);

// Tells how long each part of a restart took, once the run is where it was.
class RestartTimes final : public Callback {
 public:
  // The start that the environment tells of; null if that is no restart. Call it when the processes
  // have met.
  static std::shared_ptr<RestartTimes> of_this_start(Console& console);
  RestartTimes(const RestartMark& mark, Console& console);

  // How many steps the run had made when it failed. Call it before setup().
  void set_lost_step(std::int64_t step) { lost_ = step; }
  // Null before the run is where it was.
  JsonValue json() const;

  CallbackPhase phase() const override { return CallbackPhase::kMeasure; }
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  std::int64_t recomputed_steps() const;

  const RestartMark mark_;
  Console& console_;
  const double met_at_;
  double resumed_at_ = 0;  // 0: not yet
  std::int64_t resumed_from_ = 0, lost_ = 0;
  double again_ = -1;  // seconds for the steps that were made again, or for the first; -1: not yet
};

}  // namespace belfry
