// Moving averages of batch norm: one copy for all towers, kept on the host, moved by the
// combination of all towers' moments.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph/collections.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

// What one training tower hands over at one batch norm layer: its batch's moments, on its device,
// and the averages that they are to move. Synchronised moments are the same Output in all.
struct BatchMoments {
  Variable mean_average, variance_average;
  Output mean, variance;
  double momentum = 0.9;
  SourceLine site;
  bool synchronised = false;  // the moments are those of all towers of all processes
};

struct AverageOptions {
  std::string_view collection = kUpdateOps;
  // Of the towers of all processes; none: they count equally.
  std::span<const std::int64_t> samples = {};
  Output applied = {};  // scalar f32; where it is 0 averages stay as they are. None: they move
};

// Adds, for each layer, the nodes that combine the moments of all towers in their order and move
// the averages by
//   average -= (average - batch) * (1 - momentum).
// They are where the averages are, and in the collection. Averages that nodes of this collection
// move already are moved after these. A layer that was applied several times per tower moves its
// averages several times, in order of application. Towers count equally, or by `samples`, one
// number per tower; one without samples is left out. `towers[t]` are the moments of tower t in
// order of creation; those of other processes count, too. Throws InvalidArgument naming both lines
// if towers differ in their layers.
void update_moving_averages(Graph& graph, std::span<const std::vector<BatchMoments>> towers,
                            const AverageOptions& options = {});

}  // namespace belfry
