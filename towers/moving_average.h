// Moving averages of batch norm: all towers share one copy on the host, which their combined
// moments move.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph/collections.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

// How many values per channel the moments cover: known when the graph is built, or else a scalar of
// the moments' type. Neither: a variance moves its average uncorrected.
struct ValueCount {
  double known = 0;
  Output counted = {};

  explicit operator bool() const { return known > 0 || counted; }
};

// The moments of one training tower's batch at one batch norm layer, on the tower's device, and the
// averages that they move. Towers with synchronised moments have the same Output.
struct BatchMoments {
  Variable mean_average, variance_average;
  Output mean, variance;
  double momentum = 0.9;
  SourceLine site;
  bool synchronised = false;  // the moments are over all towers of all processes
  // For this tower. If the layer is synchronised, `counted` is for all towers.
  ValueCount values = {};
};

struct AverageOptions {
  std::string_view collection = kUpdateOps;
  // One number per tower of all processes; none: towers count equally.
  std::span<const std::int64_t> samples = {};
  Output applied = {};  // scalar f32; 0 leaves the averages unchanged. None: they move
};

// Adds, for each layer, the nodes that combine the moments of all towers in their order and move
// the averages by
//   average -= (average - batch) * (1 - momentum).
// A variance with a count of values (BatchMoments::values) is first multiplied by n / (n - 1), for
// the n values of all these towers; by 1 if n is 1. These nodes are on the device of the averages
// and in the collection, and run after nodes of the collection that move the same averages. A layer
// that a tower applied several times moves its averages several times, in order of application.
// Towers count equally, or by `samples`; a tower without samples is left out. `towers[t]` has the
// moments of tower t of this process in order of creation; moments of other processes count, too.
// Throws InvalidArgument naming both lines if towers differ in their layers.
void update_moving_averages(Graph& graph, std::span<const std::vector<BatchMoments>> towers,
                            const AverageOptions& options = {});

}  // namespace belfry
