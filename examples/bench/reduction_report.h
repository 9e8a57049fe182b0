// The figures of allreduce_bench as text, CSV and JSON.
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "reduction_bench.h"
#include "update_bench.h"

namespace belfry {

// Writes lines whose first thirteen columns are those of nccl-tests, so that its parsers read them.
// Behind them: the byte limit in us, the share of it that a sum in place reaches (limit over time;
// "-" for small sizes, which their bytes do not limit), the strategy, "(canonical)", and, if there
// is a prediction, its time over the measured one, out of place and in place.
class ReductionTable {
 public:
  // The options must outlive the table.
  explicit ReductionTable(const ReductionBenchOptions& options) : options_(options) {}

  // The column heads: lines that begin with '#'.
  std::string head() const;
  // A line per strategy; "auto" has its reason before, in lines that begin with '#'. "# NAME
  // refused: REASON" for strategies that were not timed.
  std::string lines(const ReductionBench& bench);
  // Elements out of bounds, and the average bus bandwidth of each strategy, out of place and in
  // place.
  std::string summary() const;
  // Wrong elements in all checks.
  std::int64_t wrong() const { return wrong_; }

 private:
  struct Average {
    std::string strategy;
    double sum = 0;
    int count = 0;
  };

  const ReductionBenchOptions& options_;
  std::vector<Average> averages_;
  std::int64_t wrong_ = 0;
  bool checked_ = false;
};

// Adds to a list two objects for each strategy that was timed, out of place and in place: strategy,
// canonical, devices (K, of all processes), processes, device_type, dtype, redop, bytes (per
// device), in_place, time_us, algbw, busbw (GB/s of 1e9), wrong (null if it was not checked),
// limit_us, agg_iters (reductions in a timed step; the times are of one); with a machine also
// resolved (what "auto" chose) and predicted_us.
void append_json(const ReductionBench& bench, const ReductionBenchOptions& options,
                 JsonValue& list);

// The four cells of `strategy` as lines, and heads for them that begin with '#': size, count, type,
// redop, strategy, fuse_updates, share_replicas, median time in us, times as fast as with both off,
// #wrong.
std::string update_head();
std::string update_lines(const UpdateBench& bench, const std::string& strategy,
                         const ReductionBenchOptions& options);
// Adds an object per cell: the same members, and fuse_updates, share_replicas and ratio, how many
// times as fast as with both off. in_place is true, as variables are updated in place; time_us is
// of the whole step, limit_us of the buffers of its gradients.
void append_json(const UpdateBench& bench, const std::string& strategy,
                 const ReductionBenchOptions& options, JsonValue& list);

// The list as a head line and a line per object. Null becomes empty.
std::string to_csv(const JsonValue& list);

}  // namespace belfry
