// Into how many shards a trainer cuts the global batch by default.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "belfry/towers/replicate.h"

namespace belfry {

// The work of a step per sample, and the memory that it leaves per shard.
struct ModelWork {
  double multiply_adds = 0;  // of one sample, forward (OpWork)
  double rereads = 0;        // of a shard, forward, however few samples it has (OpWork)
  double weights = 0;        // elements that are trained, or that groups freeze
};

// The work of a tower that is fed `samples` samples. A product counts all rows of a sample, such as
// its tokens. Arithmetic on weights alone does not count, because shards do not divide it.
// `frozen`: the variables that groups freeze, so that shards do not depend on groups.
ModelWork work_of(const TowerRecord& tower, std::int64_t samples,
                  const std::set<std::string, std::less<>>& frozen = {});

// A function of the model and the global batch alone, never of devices, cores or timing. More
// shards occupy more cores, but each adds a gradient of all weights to memory. That moves about 12
// bytes per weight, and in the same time a core does some 48 multiply-adds per weight. A step does
// about six multiply-adds for each forward one of a sample. So the extra memory costs less than a
// tenth if a shard has 80 weights / multiply_adds samples or more. A recurrence reads its weights
// again at each time, forward and backward. A cache delivers eight of them in the time of one
// weight's gradient (measured with an LSTM), so eight rereads count as one weight. The number is
// the largest power of two that leaves each shard that many samples: at most 8, or in larger
// batches one shard per 16 samples, up to 256. If it does not divide the global batch, but half of
// it does, it is halved.
// Where this rule gives fewer, there is a shard for each of 2 or 4 devices that can share the batch
// alike, so that these give the bits of one. Other batches have 2 shards if each has 8 weights /
// multiply_adds samples or more: from there on a second core saves more than the second gradient
// costs (measured with the MLP).
int default_shards(const ModelWork& work, std::int64_t global_batch);

}  // namespace belfry
