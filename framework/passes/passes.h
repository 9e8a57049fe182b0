// The passes of compile(), in the order of compile.cc. Each turns a plan that the earlier ones made
// into one that the next can use. Each has its own test and its own file, but for check_ranks and
// split_ranks, which share ranks.cc. What passes share is in nodes.h.
#pragma once
#include "belfry/framework/passes/compile.h"

namespace belfry {

// Keeps what the fetches need, with real shapes; adds the copies that fetches are read from.
void prune(PlanGraph& plan, std::span<const Fetch> fetches, std::span<const FeedType> feeds);

// Puts towers side by side: each node comes with those of other towers that have its logical name.
void order_towers(PlanGraph& plan);

// Gives every output the device that it has in the placement of the whole graph (placement.h), in
// the order in which they were placed. Throws InvalidArgument for nodes that have none.
void place(PlanGraph& plan, const PlanContext& context);

// Refuses collectives by ranks (Op::ranks) with a participant that is not on a GPU: InvalidArgument
// naming both; and all of them in sessions whose GPUs have no NCCL: NotFoundError.
void check_ranks(const PlanGraph& plan, const PlanContext& context);

// The verifier at compile: refuses steps in which towers would not combine or apply the same.
// Throws InvalidArgument naming the variable and the lines if
// * a feed replaces the gradient, combined gradient or part in a collective of some towers alone,
//   or stands between the gradients and the combined ones;
// * a collective of tensors of towers has one of them twice, or copies of one not in the order of
//   towers;
// * gradients of one variable, or its combined ones, have other real shapes or dtypes;
// * some towers' gradients share a device and others do not (not with soft placement);
// * verify_updates() does.
// It changes nothing.
void verify(const PlanGraph& plan, const PlanContext& context);
// The second of these; for plans that prune() could not finish, too.
void verify_types(const PlanGraph& plan);
// Refuses writes of a variable whose gradients were combined that depend on some gradient, but not
// on its own combined one; two such writes; writes of some towers' copies alone; and writes of
// copies that differ in their op, options or constants, or in the gradients that they depend on.
void verify_updates(const PlanGraph& plan);

// Lets replicas of one memory space, with the same first value and the same writes, lie in one
// storage. Their writes become one, and their reads that storage's (Plan::shares, Plan::unshare).
void share_replicas(PlanGraph& plan, const PlanContext& context);

// Divides the nodes of devices that are fed with samples (FeedType::first_sample) into shards of
// the batch, by the rules of their ops. Inserts what makes tensors whole for the others. Throws
// InvalidArgument if feeds of one device differ in their samples.
void shards(PlanGraph& plan, const PlanContext& context);

// Where NCCL is missing, moves what sends to other processes from a GPU to the first CPU. Moves
// there, too, what shards() has put on a GPU and has no kernel for GPUs. AddPieces are where their
// pieces arrive.
void place_messages(PlanGraph& plan, const PlanContext& context);

// Replaces a collective, with the sums over shards before it, or such a sum by one FusedUpdate. It
// takes in the updates that read its results, if nothing else reads them. On a GPU it also fuses
// several updates of one op that follow no sum. A fusion never moves a read to another version of a
// variable.
void fuse_updates(PlanGraph& plan, const PlanContext& context);

// Puts one node in the place of several where their ops say so (Op::fuse). It changes the order of
// no reads and writes of variables.
void fuse(PlanGraph& plan, const PlanContext& context);

// Makes every tensor that crosses devices a node, one per destination device: a Copy for the first
// device of another memory space, else a Transfer. Constants are wherever they are needed: each
// memory space that reads one has a node of its own for it. Feeds are where they were placed; those
// of GPUs are brought there before the step (FeedSlots), and counted here. Fetches are on hosts.
// What GPUs read of feeds and constants of CPUs is copied into an arena there first, as GPUs do not
// copy from memory that is not pinned.
void add_transfers(PlanGraph& plan, const PlanContext& context);

// Makes PackWeights of weights that several kernels of one memory space want in one form
// (Op::packed_form), and gives it to them: one to what the backward pass recomputes, and one to all
// else. Each comes when nothing is left to do that need not wait for it.
void pack_weights(PlanGraph& plan, const PlanContext& context);

// Lets the backward pass on hosts make activations again where one pass over memory does that
// (Op::rebuild) and what they are made of is kept anyway, rather than keep them.
void rebuild(PlanGraph& plan, const PlanContext& context);

// In plans of PrepareOptions::gathers_first: lets the run begin with what it would gather for the
// next one at its end (AssignGathered), as the run before has left it (PlanGraph::gathered_first).
// Changes nothing where the run itself reads what is gathered.
void gather_first(PlanGraph& plan, const PlanContext& context);

// Binds reads of variables to versions: orders each write after the users of older versions, or
// copies a read where that would close a cycle.
void order_writes(PlanGraph& plan);

// For plans of LockDuration::kEachVariable, after order_writes: turns each read of a variable into
// a copy, and gives the users of what a write leaves a copy of it. Copies of what the run finds
// come first, those of what a write leaves right behind it.
void copy_variables(PlanGraph& plan);

// Cuts each collective by ranks into the parts of its ranks, one per physical GPU, or per device if
// NCCL serves several ranks on one. They stand behind each other in the order of nodes, so that
// every communicator sees the same collectives in the same order.
void split_ranks(PlanGraph& plan, const PlanContext& context);

// In plans with GPUs: one Copy per memory space of all small tensors that hosts take from there and
// that no GPU, fetch or eager node waits for. Such are those for variables of hosts alone. These
// copies come behind all else, and what needs them last, so that GPUs have all their work before a
// host waits. Groups of nodes (kNoOp) on GPUs do not wait for that. After this the order of nodes
// is that of launches.
void group_copies(PlanGraph& plan, const PlanContext& context);

// Puts launches in one global order, on strands, with the waits between them. Copies between host
// and GPU are on the strand of the GPU, those between GPUs on that of their destination; parts of
// ranks are on strands for communication. Throws InvalidArgument for collectives that no device of
// theirs reaches the tensors of.
ExecutionSchedule schedule(const PlanGraph& graph, const PlanContext& context);

// Prepares a kernel per launch, for its shapes, and asks how much scratch memory it needs. Declared
// devices get none of either. Throws NotFoundError naming op, type and device if a GPU has no
// kernel.
void prepare_kernels(const PlanGraph& graph, ExecutionSchedule& schedule,
                     const PlanContext& context);

// Gives every tensor a buffer - aliases and in-place outputs share one - and lays out each device's
// arena. Two buffers overlap only if every use of one happens before the first write of the other.
// Constants of GPUs and FeedSlots outlive runs, so they are no part of it.
MemoryLayout plan_memory(const PlanGraph& graph, const ExecutionSchedule& schedule,
                         const PlanContext& context);

// Turns the schedule into the commands of each strand: who waits for whom, by which means, and what
// a GPU gets as a whole, if it shall `capture`.
Commands issue(const Plan& plan, bool capture);

}  // namespace belfry
