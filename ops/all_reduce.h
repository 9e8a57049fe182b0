// AllReduce: every participant gets the sum of all.
#pragma once
#include "belfry/framework/graph.h"

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

struct AllReduceOptions {
  bool mean = false;     // divides by K once at the end; floating types only
  int participants = 0;  // K; 0: as many as there are tensors
};

// One tensor of K participants; with options.participants, as many as xs has, tensor-major.
std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options = {},
                               At at = {});

// tensors[b][t], combined by one node; the results are arranged alike. Throws InvalidArgument
// unless every tensor has as many participants as the first.
std::vector<std::vector<Output>> all_reduce_bucket(std::span<const std::vector<Output>> tensors,
                                                   AllReduceOptions options = {}, At at = {});

}  // namespace belfry
