// Shards: rules that divide the work of a node by the samples of its device's batch.
//
// A device may cut its batch into S shards. A tensor is then whole, or cut by rows, or a partial
// sum: each shard has a tensor, and these add up to the whole one. Every op has a rule that says
// how its outputs are divided, given how its inputs are. A node of an op without a rule gathers its
// inputs and runs once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

struct Division {
  enum class Kind : std::uint8_t { kWhole, kRows, kPartial };
  Kind kind = Kind::kWhole;
  // kRows: dimension 0 holds this many rows of each sample. A shard has the rows of its samples.
  std::int64_t rows = 0;

  static Division by_rows(std::int64_t rows) { return {Kind::kRows, rows}; }
  static Division partial() { return {Kind::kPartial, 0}; }
  explicit operator bool() const { return kind != Kind::kWhole; }
  bool operator==(const Division&) const = default;
};

// The samples of a batch, numbered from 0, that belong to shard `shard` of `shards`.
WorkRange samples_of_shard(std::int64_t samples, int shards, int shard);

// The input of a rule. Types are those of whole tensors.
struct ShardContext {
  const Node& node;
  std::span<const TensorType> inputs, outputs;
  std::span<const Division> divisions;  // of the inputs
  std::int64_t samples;

  bool all_partial() const;
};

// The answer of a rule. If `own` is empty, the node is not divided.
struct Sharding {
  std::vector<Division> outputs;
  // Inputs of which each shard takes its own part: its partial sum, or its rows, even of a whole
  // tensor. Each shard takes other inputs unchanged. Empty: none.
  std::vector<bool> own;

  bool divides() const { return !own.empty(); }
};

// Element i of each output depends on elements i of the inputs, which broadcast.
Sharding pointwise_shards(const ShardContext& c);
// Like pointwise_shards(), for ops that are linear in all inputs: partial sums stay partial.
Sharding linear_shards(const ShardContext& c);

// Like pointwise_shards(), for products and quotients. A partial sum times a whole tensor, or
// divided by it, stays a partial sum.
Sharding product_shards(const ShardContext& c);
Sharding quotient_shards(const ShardContext& c);

// A row of each output depends on the same row of the inputs in `own` (bit i: input i), and on the
// whole of the others. Pass `shards` adds up those of the others that are partial sums.
Sharding row_shards(const ShardContext& c, unsigned own);
// Each output is a sum over the rows of the inputs in `own`.
Sharding sum_shards(const ShardContext& c, unsigned own);
// row_shards() and sum_shards() as rules.
template <unsigned own>
Sharding by_rows(const ShardContext& c) {
  return row_shards(c, own);
}
template <unsigned own>
Sharding to_sums(const ShardContext& c) {
  return sum_shards(c, own);
}
// For an alias that keeps its elements in order: a sample's rows become other rows.
Sharding reshaped_shards(const ShardContext& c);

}  // namespace belfry
