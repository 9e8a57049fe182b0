// Pieces of a row of elements, one for each process.
#pragma once
#include <vector>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Where the pieces of a row begin, by rank, and where the last one ends: piece r is [cuts[r],
// cuts[r + 1]). Pieces may be empty. A single piece is that of every rank.
using Cuts = std::vector<std::int64_t>;
Cuts one_piece(std::int64_t elements);
// Pieces of nearly equal size: whole cache lines, if the row is long.
Cuts even_cuts(std::int64_t elements, int size);
// If a row has a multiple of this many elements, its pieces are equal.
std::int64_t even_unit(int size);
std::vector<std::int64_t> piece_sizes(const Cuts& cuts);
WorkRange piece_of(const Cuts& cuts, int rank);

}  // namespace belfry
