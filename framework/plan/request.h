// What a user asks a session to compute, and under which locks.
#pragma once
#include <optional>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

// What to compute: an output, the value of a variable, or a node for its effect.
struct Fetch {
  Fetch(Output o) : output(o), node(&o.node()) {}       // NOLINT
  Fetch(Variable v) : Fetch(static_cast<Output>(v)) {}  // NOLINT
  Fetch(Node& n) : node(&n) {}                          // NOLINT
  Output output;                                        // empty for a node
  Node* node;
};

struct FeedValue {
  Output where;
  Tensor what;
};

// A type of a feed, before its values exist.
struct FeedType {
  Output where;
  Shape shape;
  // Of samples, one per index of dimension 0: the number of the first of them in the batch of all
  // devices. Such a feed may be cut into shards.
  std::optional<std::int64_t> first_sample = {};
};

// How long a run holds variables.
enum class LockDuration {
  kWholeRun,      // all, from its beginning to its end: it is alone in the session
  kEachVariable,  // each while it is copied, and while it is written
};

}  // namespace belfry
