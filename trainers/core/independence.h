// What decides the bits of a run beside run_fingerprint(), and how reports tell it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

class BuiltTraining;

// Why the bits of a run depend on its number of devices K; "" if K = 1, 2, 4 and 8, and larger
// powers of two up to the number of shards, give the same with these options and the same global
// batch, if they can share it alike. docs/numerics.md says what it takes.
std::string k_dependence(const BuiltTraining& built);

// The metrics of the tower function that are known to be neither means nor sums over samples. Each
// tower and each block of an evaluation has a value of its own for a ratio that is no end of sums,
// so it depends on the number of devices, also where weights do not.
std::vector<std::string> metrics_by_devices(const BuiltTraining& built);

// The notes of a checkpoint on how its run came to its bits: devices and their types, shards,
// libraries, and how gradients are added if not by the canonical sum. It also notes why bits depend
// on the number of devices, or on chance. Processors are noted for people, and not compared.
JsonValue bit_sources(const BuiltTraining& built);

// Why a run that goes on as `now` does not end with the bits of one that never stopped, and whose
// checkpoint notes `before`: the first reason; "" if it does, as far as one can know. What `before`
// lacks is not compared.
std::string why_other_bits(const JsonValue& before, const JsonValue& now);

// The first reason for which a resumption of the run, the one as `now` or one before, changed its
// bits; "" if none did.
std::string earlier_bits(const JsonValue& before, const JsonValue& now);

// The shards of a planned run.
struct ShardReport {
  std::int64_t global_batch = 0;
  int shards = 1;
  int equal_up_to = 0;  // so many devices, in powers of two, give the same bits; 0: none do
  // The number of shards that gives the same bits on 1, 2, 4 and 8 devices, and on as many as
  // these, where the default number does not; 0: it does, or no number would, or options had one.
  int for_equal_bits = 0;
  std::string k_dependent_because;  // k_dependence()
};
ShardReport shard_report(const BuiltTraining& built);

// Adds k_independent, and k_dependent_because, which is null if it is. `because`: k_dependence().
void add_k_dependence(JsonValue& report, const std::string& because);

}  // namespace belfry
