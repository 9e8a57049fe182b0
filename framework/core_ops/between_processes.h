// Ops that move tensors between processes. Each process builds the same ones in the same order.
// Tensors on a GPU go by NCCL, or through host memory without NCCL (pass place_messages).
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/core_ops/cuts.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

// The canonical sum over the towers of all processes, or their mean. `own` has one sum for each
// covering node of this process (covering_nodes.h): 1-D tensors of one type. The process has
// `towers` towers. All get the same tensor. Each process adds one piece of the row
// (reduce-scatter), and sends it to the others (all-gather). Two processes on two hosts both add
// the whole row, unless it is on a GPU. If there are many processes, or several hosts with several
// (adds_within_hosts()), they do so level by level: first within groups of successive processes
// whose towers are one node of the tree, then one of each group.
Output sum_over_processes(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                          At at = {});
// Like sum_over_processes(), but each process keeps only its own piece: a reduce-scatter.
Output reduce_scatter(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                      const Cuts& cuts, At at = {});

// Whether sum_over_processes() adds within hosts first, so that each piece goes to other hosts once
// per host, not once per process. It does if there are several hosts with several processes each,
// and the towers of each host are one node of the tree.
bool adds_within_hosts(ProcessPlace place, int towers);

// A ring send: sends a piece of a row to the next process by rank. Returns piece `arriving` of the
// cuts, which comes from the process before.
Output ring_send(Output piece, ProcessPlace place, const Cuts& cuts, int arriving, At at = {});
// An all-gather: the whole row, of which each process contributes its piece. `piece` may also be a
// row of full length with the piece in its place.
Output all_gather(Output piece, ProcessPlace place, const Cuts& cuts, At at = {});

// The sum of a tensor over all processes, in an order that MPI chooses. Other groups reject it when
// the step runs (ProcessGroup::sum).
Output mpi_all_reduce(Output tensor, At at = {});

// The rows of all processes, by rank: [n, ...] gives [size * n, ...]. There are up to log4(size)
// rounds, in each of which a process sends three messages.
Output gather_over_processes(Output rows, ProcessPlace place, At at = {});

// Whether the messages of such a node have a tag of their own in a step, so that they need not keep
// the order of other messages.
bool may_overtake(const Node& exchange);

// The nodes of the graph that send to other processes, in order of creation.
std::vector<Node*> exchanges(const Graph& graph);
// About as many bytes as the row has whose pieces such a node sends: the same in all processes.
std::int64_t row_bytes(const Node& exchange);
// Whether it sends pieces of pieces, whose sizes may differ between processes.
bool exchanges_pieces(const Node& exchange);

extern const Op kReduceScatter, kAddReceived, kAllGather, kRingSend, kMpiAllReduce;

}  // namespace belfry
