// The byte limit of a reduction, timed in turns with the reductions.
#pragma once
#include <memory>

#include "belfry/trainers/util/interleaved.h"
#include "byte_limit.h"
#include "copy_limit.h"
#include "reduction_bench.h"

namespace belfry {

class TimedLimit {
 public:
  // Adds its ways to `ways`: if all devices are GPUs, copying buffers of `bytes` within them
  // (CopyLimit), else scaling them in place on `workers` workers (ByteLimit); both
  // options.aggregate times in a row. Must outlive their runs.
  TimedLimit(Interleaved& ways, const ReductionBenchOptions& options, std::int64_t bytes,
             int workers);

  // The time of the fastest way for one reduction, after a run.
  double seconds() const;

 private:
  const Interleaved& ways_;
  int aggregate_;
  std::unique_ptr<CopyLimit> copy_;
  std::unique_ptr<ByteLimit> scale_;
  std::vector<int> added_;
};

}  // namespace belfry
