// RandomUniform, RandomNormal: counter-based random numbers. They depend only on (graph seed,
// logical name, tower, step, element), so neither placement nor threads change them. With an input,
// a batch of samples, they have a row of `shape` for each of its rows. Its values do not matter,
// and rows are numbered over all towers, so the number of towers does not change them either.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kRandomUniform;
extern const Op kRandomNormal;

struct RandomUniformOptions {
  Shape shape;
  double low = 0, high = 1;
  DType dtype = DType::kF32;
  // Of samples that are not trained: the step is no key, but the number of the first sample.
  bool fixed = false;
};

struct RandomNormalOptions {
  Shape shape;
  double stddev = 1;
  DType dtype = DType::kF32;
  // Of samples that are not trained: the step is no key, but the number of the first sample.
  bool fixed = false;
  bool truncated = false;  // numbers beyond two deviations are drawn again
};

// Numbers in [low, high). `shape` must be known. f32 and f64. Each tower draws its own: for initial
// values, and for noise that belongs to no sample. Models draw the noise of samples by
// random_normal(tower, samples, ...) (towers/layers.h).
Output random_uniform(Graph& graph, Shape shape, double low = 0, double high = 1,
                      DType dtype = DType::kF32, At at = {});
Output random_normal(Graph& graph, Shape shape, double stddev = 1, DType dtype = DType::kF32,
                     At at = {});

// The 64-bit key of a random node: from the graph's seed, the node's logical name and its replica.
// 64 random bits for an element of a step are kernels::mix(key, step, element). `of_all_towers`:
// without the replica, for nodes whose elements are numbered over all towers.
std::uint64_t random_key(const Node& node, bool of_all_towers = false);

}  // namespace belfry
