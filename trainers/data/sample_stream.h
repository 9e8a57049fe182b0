// Data of which nobody knows how many there are: from a pipe, or made by a program.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "belfry/trainers/data/map_samples.h"

namespace belfry {

// Records, one after another.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Writes the fields of the next record, which are zeros before. False if there is none. It may
  // throw BadRecord; the next call then continues with the next record.
  virtual bool next(const SampleFields& to) = 0;
  // Leaves out up to `records` of those that next() would give, and says how many. A source that
  // knows where they are overrides it: a run that resumes then need not read them.
  virtual std::int64_t skip(std::int64_t /*records*/) { return 0; }
};

struct SampleStreamOptions {
  std::vector<Dataset::Field> fields;
  // Begins with the first record. Each process of a training calls it, and must get the same
  // records. It may throw if it is called again, as where they come from a pipe.
  std::function<std::unique_ptr<SampleStream>()> open;
  std::int64_t buffer = 4096;  // records that are shuffled at a time
  BadRecordPolicy bad_records = {};
  std::string description = "a stream";
};

// Data for training with the records of a stream:
//   return stream_samples({.fields = {{"x", DType::kF32, {8}}, {"y", DType::kI32, {}}},
//                          .open = [] { return std::make_unique<Numbers>(); },
//                          .bad_records = dirs.bad_records});
// An epoch is a buffer of records, which stays in memory, and is shuffled by the seed; let its size
// be a multiple of the global batch. So the samples of a step depend on the numbers of the records
// alone, whatever devices, processes and data workers there are. Training ends after as many steps
// as options say (max_steps), or when the stream does; records that do not fill a last buffer are
// left out. A run that resumes skips the records of earlier buffers.
std::unique_ptr<Dataset> stream_samples(SampleStreamOptions options);

}  // namespace belfry
