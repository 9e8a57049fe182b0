// AllReduce: every participant gets the sum of all.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// A bucket of B tensors of K participants, tensor-major: input and output b * K + t are tensor b of
// participant t. Each output is the canonical sum of its tensor over all participants: a balanced
// tree over their order, split at ceil(K / 2), left + right. Shapes may differ between tensors, not
// between participants; one node has one dtype: f32 f64 f16 bf16 i32. 16-bit tensors are summed
// (and divided) in f32 and rounded once; integers wrap.
//
// Output i lives on the device of input i. Outputs of one tensor in one memory space are one
// tensor, in the memory of the first one's input if no other node reads that input. Nothing is
// copied.
extern const Op kAllReduce;

// The same by NCCL, on GPUs only; the sum is not canonical. Each physical GPU sums the tensors of
// its own participants canonically, and is one rank of a communicator. NCCL sums over ranks in its
// own order; there 16-bit types are rounded at every addition. The mean divides once, at the end.
// With several processes (Graph::process) the communicator spans the GPUs of all, and each process
// must build the same nodes in one order. Compiling throws InvalidArgument if a participant is not
// on a GPU. On hosts, where tests run its kernels, it is kAllReduce.
extern const Op kNcclAllReduce;

struct AllReduceOptions {
  bool mean = false;     // divides by K once at the end; floating types only
  int participants = 0;  // K; 0: as many as there are tensors
  // The number of processes summed over, each with K participants. Builders of kNcclAllReduce take
  // it from the graph. The mean divides by K times this number.
  int processes = 1;
};

// Reduces one tensor of K participants; with options.participants, all tensors of xs, tensor-major.
std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options = {},
                               At at = {});

// One node combines tensors[b][t]; the results have the same layout. Throws InvalidArgument unless
// every tensor has as many participants as the first.
std::vector<std::vector<Output>> all_reduce_bucket(std::span<const std::vector<Output>> tensors,
                                                   AllReduceOptions options = {}, At at = {});

std::vector<std::vector<Output>> nccl_all_reduce_bucket(
    std::span<const std::vector<Output>> tensors, AllReduceOptions options = {}, At at = {});

// For kernels of both ops: how many participants' tensors a launch gets, and its divisor, which is
// 1 if ranks add up the results of launches.
struct AllReduceShare {
  explicit AllReduceShare(const KernelPlan& plan);
  std::size_t participants;
  int divisor;
};

}  // namespace belfry
