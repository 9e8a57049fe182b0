// Fingerprints of what a training run has learned: equal models have equal hashes, whatever the
// devices, the trainer and the strategy that made them.
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/base/fnv1a.h"
#include "belfry/framework/run/session.h"

namespace belfry {

struct NamedTensor {
  std::string name;
  Tensor value;
};

// The hash, as 16 hexadecimal digits, of tensors in order of their names. Each adds: its name and a
// zero byte, its dtype ("f32") and a zero byte, its rank and dimensions as 64-bit little-endian
// integers, its dense little-endian bytes.
std::string hash_tensors(std::vector<NamedTensor> tensors);

// All variables and optimizer slots that are no copies of others.
std::vector<Variable> original_variables(const Graph& graph);
// Their values, under their logical names.
std::vector<NamedTensor> read_state(Session& session, const Graph& graph);

// Over the trainable variables, respectively over all variables and optimizer slots, that are no
// copies of others: those of tower 0, under their logical names.
std::string params_hash(Session& session, const Graph& graph);
std::string state_hash(Session& session, const Graph& graph);

// Names of the copies whose bytes differ from those of the variable that they copy. Empty when the
// towers agree, and when there is one tower. Copies in the storage of another are not looked at.
std::vector<std::string> differing_replicas(Session& session, const Graph& graph);

// Throws Error if there are any after `steps` steps: it names the first, its device and that of the
// variable that it copies, and how many more differ. Reads each copy that has storage of its own.
void require_equal_replicas(Session& session, const Graph& graph, std::int64_t steps);

// How many variables lie in the storage of another (SessionOptions::share_replicas).
int count_shared(Session& session, const Graph& graph);

}  // namespace belfry
