#pragma once
#include <optional>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

// A thing to compute: an output, the value of a variable, or a node for its effect.
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

// The type of a feed, before it has values.
struct FeedType {
  Output where;
  Shape shape;
  // For samples, which dimension 0 counts: the number of the first one in the batch of all devices.
  // Such a feed may be cut into shards.
  std::optional<std::int64_t> first_sample = {};
};

// How long a run locks variables.
enum class LockDuration {
  kWholeRun,      // all, for the whole run: it is alone in the session
  kEachVariable,  // each one while it is copied or written
};

}  // namespace belfry
