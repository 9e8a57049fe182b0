// The byte limit of a reduction, timed in turns with what it is compared with.
#pragma once
#include <memory>

#include "belfry/trainers/bench/byte_limit.h"
#include "belfry/trainers/bench/copy_limit.h"
#include "belfry/trainers/bench/reduction_bench.h"
#include "belfry/trainers/util/interleaved.h"

namespace belfry {

class TimedLimit {
 public:
  // Adds its ways: where all devices are GPUs, to copy buffers of so many bytes within them
  // (CopyLimit); else to scale them in place on so many workers (ByteLimit); options.aggregate
  // times in a row. Outlives their runs.
  TimedLimit(Interleaved& ways, const ReductionBenchOptions& options, std::int64_t bytes,
             int workers);

  // Of the fastest of them, once, after a run.
  double seconds() const;

 private:
  const Interleaved& ways_;
  int aggregate_;
  std::unique_ptr<CopyLimit> copy_;
  std::unique_ptr<ByteLimit> scale_;
  std::vector<int> added_;
};

}  // namespace belfry
