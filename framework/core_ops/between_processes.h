// Ops that move tensors between processes. Each process builds the same ones in the same order.
// What lies on a GPU goes by NCCL, and where there is none through memory of the host (pass
// place_messages).
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

// Where the pieces of a row begin, by rank, and where the last one ends: piece r is [cuts[r],
// cuts[r + 1]). Pieces may be empty.
using Cuts = std::vector<std::int64_t>;
// Pieces of nearly equal size: whole cache lines, if the row is long.
Cuts even_cuts(std::int64_t elements, int size);
// The pieces are equal of rows with a multiple of so many elements.
std::int64_t even_unit(int size);
std::vector<std::int64_t> piece_sizes(const Cuts& cuts);

// The canonical sum over the towers of all processes, or their mean. `own`: the sums of this
// process's covering nodes, one each, 1-D tensors of one type, of `towers` towers here. Each
// process adds one piece of all, and sends it to the others. Returns the same tensor in all.
// Processes may add within hosts first (adds_within_hosts()). Then tensors have multiples of
// even_unit() elements, so that all processes build nodes of one shape.
Output sum_over_processes(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                          At at = {});
// The same, of which each process keeps its own piece alone.
Output scatter_sum(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                   const Cuts& cuts, At at = {});

// Whether sum_over_processes() adds within hosts first, so that each piece goes to other hosts once
// per host, not once per process: there are several hosts of several processes, and what the towers
// of each host sum to is one node of the tree.
bool adds_within_hosts(ProcessPlace place, int towers);

// What a process makes of its piece.
struct PieceOptions {
  ProcessPlace place;
  int towers;  // of each process
  bool mean;
  Cuts cuts;
  bool whole = false;  // the piece lies in a row of all pieces, of which the others are not written
};
// The sum, or mean over all towers, of a piece of covering nodes: those of this process lie in its
// own whole rows, and those of the others, in order, are the rows of a matrix, as messages bring
// them.
Output add_pieces(std::span<const Output> own, Output others, const PieceOptions& options,
                  At at = {});
// For kernels of kAddPieces, which add along the tree by a stack: the piece of each node is put on
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

// Sends a piece of a row to the next process of the ring by rank, and returns the one that comes
// from the process before: number `arriving` of the cuts.
Output pass_on(Output piece, ProcessPlace place, const Cuts& cuts, int arriving, At at = {});
// The row of which each process has its piece. Or, of a row that is as long, has it there.
Output gather_pieces(Output piece, ProcessPlace place, const Cuts& cuts, At at = {});

// The sum of a tensor over all processes, in an order that MPI chooses. Other groups refuse it when
// the step runs (ProcessGroup::sum).
Output mpi_all_reduce(Output tensor, At at = {});

// Rows of all processes, by rank: [n, ...] gives [size * n, ...].
Output gather_over_processes(Output rows, ProcessPlace place, At at = {});

// The nodes of the graph that send to other processes, in order of creation.
std::vector<Node*> exchanges(const Graph& graph);
// Of the row whose pieces such a node sends: the same in all processes.
std::int64_t row_bytes(const Node& exchange);

extern const Op kScatterPieces, kAddPieces, kGatherPieces, kPassOn, kMpiAllReduce;

}  // namespace belfry
