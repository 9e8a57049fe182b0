// AllReduce: every participant gets the sum of all.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// A bucket of B tensors of K participants, tensor-major: input and output b * K + t are tensor b of
// participant t. Each output is the canonical sum of its tensor over all participants: a balanced
// tree over their order, split at ceil(K / 2), left + right. Shapes may differ between tensors, not
// between participants; one node has one dtype: f32 f64 f16 bf16
// i32. 16-bit tensors are summed (and divided) in f32 and rounded once; integers wrap.
//
// Output i lives on the device of input i; outputs of one tensor in one memory space are one
// tensor, in the memory of the first's input if nobody else reads that. Nothing is copied.
extern const Op kAllReduce;

// The same by NCCL: no canonical sum, and on GPUs alone. Each physical GPU sums, canonically, what
// its own participants give and is one rank of a communicator, which sums in an order of NCCL's own
// choice; 16-bit types are rounded at every addition there. The mean divides once, at the end.
// In a graph of one of several processes (Graph::process) the communicator has the GPUs of all, and
// each process builds the same nodes in one order.
// Compiling throws InvalidArgument if a participant is not on a GPU. On hosts, where tests run its
// kernels, it is kAllReduce.
extern const Op kNcclAllReduce;

struct AllReduceOptions {
  bool mean = false;     // divides by K once at the end; floating types only
  int participants = 0;  // K; 0: as many as there are tensors
  // Whose participants are summed, K of each: by kNcclAllReduce those of the graph, which builders
  // set. Then the mean divides by their product.
  int processes = 1;
};

// One tensor of K participants; with options.participants, as many as xs has, tensor-major.
std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options = {},
                               At at = {});

// tensors[b][t], combined by one node; the results are arranged alike. Throws InvalidArgument
// unless every tensor has as many participants as the first.
std::vector<std::vector<Output>> all_reduce_bucket(std::span<const std::vector<Output>> tensors,
                                                   AllReduceOptions options = {}, At at = {});

std::vector<std::vector<Output>> nccl_all_reduce_bucket(
    std::span<const std::vector<Output>> tensors, AllReduceOptions options = {}, At at = {});

// For kernels of both: how many participants' tensors a launch is given, and what it divides by; 1
// where ranks sum what it gives.
struct AllReduceShare {
  explicit AllReduceShare(const KernelPlan& plan);
  std::size_t participants;
  int divisor;
};

}  // namespace belfry
