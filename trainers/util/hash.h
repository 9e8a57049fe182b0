// Fingerprints of trained models. Equal models have equal hashes, whatever devices, trainer and
// strategy trained them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/fnv1a.h"
#include "belfry/framework/run/session.h"

namespace belfry {

struct NamedTensor {
  std::string name;
  Tensor value;
};

// The hash, as 16 hexadecimal digits, of tensors in order of their names. Each tensor adds its name
// and a zero byte, its dtype ("f32") and a zero byte, its rank and dimensions as 64-bit
// little-endian integers, its dense little-endian bytes.
std::string hash_tensors(std::vector<NamedTensor> tensors);

// All variables and optimizer slots that do not copy others.
std::vector<Variable> original_variables(const Graph& graph);
// The values of original_variables(), under their logical names.
std::vector<NamedTensor> read_state(Session& session, const Graph& graph);

// Hashes over the weights (weights_of(), which includes frozen ones and the averages of batch
// norm), or over all variables and optimizer slots. Both leave out copies of other variables, so
// they cover tower 0's variables, under their logical names.
std::string params_hash(Session& session, const Graph& graph);
std::string state_hash(Session& session, const Graph& graph);

// Names of copies whose bytes differ from the original. Empty if the towers agree, or if there is
// one tower. Copies in the storage of another are not read.
std::vector<std::string> differing_replicas(Session& session, const Graph& graph);

// Throws CorruptionError if copies differ after `steps` steps. It names the first one, its device
// and that of the original, and how many more differ. Reads each copy that has its own storage.
void require_equal_replicas(Session& session, const Graph& graph, std::int64_t steps);

// How many variables lie in the storage of another (SessionOptions::share_replicas).
int count_shared(Session& session, const Graph& graph);

}  // namespace belfry
