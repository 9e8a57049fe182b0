// The op that adds what processes have sent of a piece, along the canonical tree.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/core_ops/cuts.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

// What a process makes of its piece.
struct PieceOptions {
  ProcessPlace place;
  int towers;  // of each process
  bool mean;
  Cuts cuts;
  bool whole = false;  // the piece lies in a row of all pieces, of which the others are not written
};
// The sum, or mean over all towers, of a piece of covering nodes. Those of this process lie in its
// own whole rows. Those of the others, in order, are the rows of a matrix, as messages bring them.
Output add_pieces(std::span<const Output> own, Output others, const PieceOptions& options,
                  At at = {});
// For kernels of kAddPieces, which add along the tree by a stack. The piece of each node is put on
// it, and then so many times the last two sums are added. At the end they divide.
struct PieceSum {
  std::vector<int> additions;  // after each node
  int divisor;
  int first_own, own;  // nodes of this process, in the first inputs; the last has the others
  WorkRange piece;     // of the own rows, and of the output if that is whole
  bool whole;

  // Of elements of the output: those of the piece that a kernel computes.
  WorkRange in_piece(const Pointers& p) const;
};
PieceSum piece_sum(const KernelPlan& plan);

extern const Op kAddPieces;

}  // namespace belfry
