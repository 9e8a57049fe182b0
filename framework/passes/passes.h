// The passes of compile(), in the order of compile.cc. Each turns the plan of the earlier ones into
// one for the next. Each has its own test and its own file, except check_ranks and split_ranks,
// which share ranks.cc. Their common helpers are in nodes.h.
#pragma once
#include "belfry/framework/passes/compile.h"

namespace belfry {

// Keeps the nodes that the fetches need, with real shapes. Adds the copies that fetches are read
// from.
void prune(PlanGraph& plan, std::span<const Fetch> fetches, std::span<const FeedType> feeds);

// Puts towers side by side: a node comes next to the nodes of other towers with its logical name.
void order_towers(PlanGraph& plan);

// Gives every output its device by the placement of the whole graph (placement.h), and keeps the
// order of placement. Throws InvalidArgument for nodes without a place.
void place(PlanGraph& plan, const PlanContext& context);

// Refuses a collective by ranks (Op::ranks) if a participant is not on a GPU: InvalidArgument
// naming both. Refuses all of them if the GPUs have no NCCL: NotFoundError.
void check_ranks(const PlanGraph& plan, const PlanContext& context);

// The verifier at compile: refuses steps in which towers would not combine or apply the same.
// Throws InvalidArgument naming the variable and the lines if
// * a feed replaces the gradient, combined gradient or part in a collective of only some towers, or
//   stands between the gradients and the combined ones;
// * a collective of tensors of towers has one of them twice, or copies of one not in the order of
//   towers;
// * gradients of one variable, or its combined ones, have different real shapes or dtypes;
// * some towers' gradients share a device and others do not (not with soft placement);
// * verify_updates() does.
// It changes nothing.
void verify(const PlanGraph& plan, const PlanContext& context);
// Checks only real shapes and dtypes (the third point). Also takes plans that prune() could not
// finish.
void verify_types(const PlanGraph& plan);
// Checks the updates of each variable whose gradients were combined. Refuses
// * a write that depends on some gradient, but not on the variable's own combined one;
// * a second write that depends on a gradient;
// * writes of the copies of only some towers;
// * writes of copies that differ in their op, options or constants, or in the gradients that they
//   depend on.
void verify_updates(const PlanGraph& plan);

// Puts replicas in one memory space into one storage if they have the same first value and the same
// writes. One write replaces theirs, and all reads read this storage (Plan::shares, Plan::unshare).
void share_replicas(PlanGraph& plan, const PlanContext& context);

// Divides the nodes of devices that are fed with samples (FeedType::first_sample) into shards of
// the batch, by the rules of their ops. Inserts nodes that make tensors whole for undivided nodes.
// Throws InvalidArgument if feeds of one device differ in their samples.
void shards(PlanGraph& plan, const PlanContext& context);

// Without NCCL, moves nodes that send to other processes from a GPU to the first CPU. Also moves
// nodes there that shards() has put on a GPU and that have no GPU kernel. AddPieces go where their
// pieces arrive.
void place_messages(PlanGraph& plan, const PlanContext& context);

// Replaces a collective and the sums over shards before it, or only such a sum, by a FusedUpdate.
// It absorbs the updates that read the results, if nothing else reads them. On a GPU it also fuses
// several updates of one op that follow no sum. A fusion never binds a read to another version of a
// variable.
void fuse_updates(PlanGraph& plan, const PlanContext& context);

// Replaces several nodes by one where their ops say so (Op::fuse). Reads and writes of variables
// keep their order.
void fuse(PlanGraph& plan, const PlanContext& context);

// Turns every tensor that crosses devices into a node, one per destination device. The first device
// of another memory space gets a Copy, the others a Transfer. Each memory space that reads a
// constant has its own node for it. Feeds stay where they were placed. Feeds of GPUs are brought
// there before the step (FeedSlots), and this pass counts them. Fetches are on hosts. A feed or
// constant of a CPU that a GPU reads is first copied into an arena there: GPUs copy only from
// pinned memory.
void add_transfers(PlanGraph& plan, const PlanContext& context);

// Inserts PackWeights for weights that several kernels of one memory space want in one form
// (Op::packed_form), and gives these the result. Recomputed nodes of the backward pass share one
// PackWeights, and all other nodes another. A PackWeights runs only once no other node can run
// without it.
void pack_weights(PlanGraph& plan, const PlanContext& context);

// Lets the backward pass on hosts recompute activations, instead of keeping them. It does so where
// one pass over memory suffices (Op::rematerialise) and the inputs of that pass are kept anyway.
void rematerialise(PlanGraph& plan, const PlanContext& context);

// For plans of PrepareOptions::gathers_first. The run would end with gathers of updated values for
// the next run (AssignGathered). Instead it begins with the gathers that the previous run left open
// (PlanGraph::gathered_first). Changes nothing if the run itself reads the gathered values.
void gather_first(PlanGraph& plan, const PlanContext& context);

// Binds reads of variables to versions. It orders each write after the users of older versions, or
// copies the read where that would close a cycle.
void order_writes(PlanGraph& plan);

// For plans of LockDuration::kEachVariable, after order_writes. Turns each read of a variable into
// a copy, and gives the users of a written value a copy of it. Copies of values from before the run
// come first. A copy of a written value comes right after the write.
void copy_variables(PlanGraph& plan);

// Cuts each collective by ranks into one part per rank. A physical GPU has one rank, or each of its
// devices has one if NCCL serves several ranks there. Parts of one collective follow each other in
// the order of nodes, so every communicator sees the same order of collectives.
void split_ranks(PlanGraph& plan, const PlanContext& context);

// For plans with GPUs. Replaces small copies from a GPU's memory to hosts by one Copy per memory
// space. It takes those that no GPU, fetch or eager node waits for, such as the ones for variables
// that only hosts have. The new copies come after everything else, and their users last, so GPUs
// have all their work before a host waits. Groups of nodes (kNoOp) on GPUs do not wait for these
// copies. From here on the order of nodes is the order of launches.
void group_copies(PlanGraph& plan, const PlanContext& context);

// Pads rows of 16-bit tensors on GPUs to whole packs of 8 elements, where all kernels that use a
// tensor take pitches (GpuKernelMaker::takes_pitches).
void pad_rows(PlanGraph& plan, const PlanContext& context);

// Puts launches in one global order, on strands, with the waits between them. A copy between host
// and GPU is on a strand of the GPU, and a copy between GPUs on one of its destination. Parts of
// ranks are on strands for communication. Throws InvalidArgument for a collective if none of its
// devices reaches all its tensors.
ExecutionSchedule schedule(const PlanGraph& graph, const PlanContext& context);

// Prepares a kernel per launch, for its shapes, and asks how much scratch memory it needs. Launches
// of declared devices get neither. Throws NotFoundError naming op, type and device if a GPU has no
// kernel.
void prepare_kernels(const PlanGraph& graph, ExecutionSchedule& schedule,
                     const PlanContext& context);

// Gives every tensor a buffer - aliases and in-place outputs share one - and lays out each device's
// arena. Two buffers overlap only if every use of one happens before the first write of the other.
// Constants of GPUs and FeedSlots outlive runs, so they are outside the arena.
MemoryLayout plan_memory(const PlanGraph& graph, const ExecutionSchedule& schedule,
                         const PlanContext& context);

// Turns the schedule into the commands of each strand: what it waits for, and how, and which
// launches a GPU gets as one graph. There are no graphs without `capture`.
Commands issue(const Plan& plan, bool capture);

}  // namespace belfry
