// The op that adds the terms of a piece, which processes have sent, along the canonical tree.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/core_ops/cuts.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

// How a process adds its piece.
struct PieceOptions {
  ProcessPlace place;
  int towers;  // of each process
  bool mean;
  Cuts cuts;
  bool whole = false;  // the output is a whole row, of which only the piece is written
};
// The sum, or mean over all towers, of one piece over all covering nodes (covering_nodes.h). `own`
// has whole rows, one for each covering node of this process. `others` is a matrix with the piece
// of each covering node of the other processes, in order, as messages bring them.
Output add_pieces(std::span<const Output> own, Output others, const PieceOptions& options,
                  At at = {});
// For kernels of kAddPieces, which add along the tree with a stack. They push the piece of each
// node, and then add the top two sums this many times. At the end they divide.
struct PieceSum {
  std::vector<int> additions;  // after each node is put on the stack
  int divisor;
  int first_own, own;  // nodes of this process, in the first inputs; the last has the others
  WorkRange piece;     // in the own rows, and in the output if it is whole
  bool whole;

  // The elements of the piece among the elements of the output that a kernel computes.
  WorkRange in_piece(const KernelPointers& p) const;
};
PieceSum piece_sum(const KernelPlan& plan);

extern const Op kAddPieces;

}  // namespace belfry
