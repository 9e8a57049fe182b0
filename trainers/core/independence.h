// What decides the bits of a run besides run_fingerprint(), and how reports say so.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

class BuiltTraining;

// Why the bits of a run depend on its number of devices K; "" if K = 1, 2, 4 and 8, and larger
// powers of two up to the number of shards, give the same bits with these options and this global
// batch, as far as they divide it equally. docs/numerics.md lists the conditions.
std::string k_dependence(const BuiltTraining& built);

// A line for people where a run on several devices gives other results than one device would: why,
// and what to do about it. "" if it gives the same, and on GPUs, which have one shard each.
std::string unlike_one_device(const BuiltTraining& built);

// The metrics of the tower function that are not known to be means or sums over samples. Each
// tower, and each block of an evaluation, computes its own value, and these are averaged. So a
// ratio that is not the end of sums depends on the number of devices even if the weights do not.
std::vector<std::string> metrics_by_devices(const BuiltTraining& built);

// What a checkpoint records about the bits of its run: devices and their types, shards, libraries,
// and how gradients are added if not by the canonical sum. It also records why bits depend on the
// number of devices, or on chance. Processors are recorded for people, and not compared.
JsonValue bit_sources(const BuiltTraining& built);

// Why a run that resumes with the sources `now` cannot end with the bits of a run that never
// stopped, if its checkpoint has the sources `before`: the first reason; "" if it can, as far as is
// known. Members that `before` lacks are not compared.
std::string why_other_bits(const JsonValue& before, const JsonValue& now);

// The first reason why resuming changed the bits of the run, this time (`now`) or earlier; "" if
// none did.
std::string earlier_bits(const JsonValue& before, const JsonValue& now);

// The shards of a planned run.
struct ShardReport {
  std::int64_t global_batch = 0;
  int shards = 1;
  int equal_up_to = 0;  // up to this many devices, in powers of two, give the same bits; 0: none do
  // A number of shards that gives the same bits on 1, 2, 4 and 8 devices, and on as many as this
  // run has. 0 if the default number does so, if no number would, or if the options set one.
  int for_equal_bits = 0;
  std::string k_dependent_because;  // k_dependence()
};
ShardReport shard_report(const BuiltTraining& built);

// Adds k_independent, and k_dependent_because, which is null if it is. `because`: k_dependence().
void add_k_dependence(JsonValue& report, const std::string& because);

}  // namespace belfry
