#include "belfry/framework/graph/shards.h"

#include <algorithm>

namespace belfry {

WorkRange samples_of_shard(std::int64_t samples, int shards, int shard) {
  return {shard * samples / shards, (shard + 1) * samples / shards};
}

bool ShardContext::all_partial() const {
  return !divisions.empty() &&
         std::ranges::all_of(divisions, [](const Division& d) { return d == Division::partial(); });
}

namespace {

bool takes(unsigned own, std::size_t input) {
  return (own >> std::min<std::size_t>(input, 31) & 1) != 0;
}

bool has_rows(const TensorType& type, std::int64_t rows) {
  return type.shape.rank() > 0 && type.shape[0] == rows;
}

// The rows of a sample in the first input that is cut by rows; 0 if none is.
std::int64_t rows_of(const ShardContext& c, unsigned own) {
  for (std::size_t i = 0; i < c.divisions.size(); ++i)
    if (takes(own, i) && c.divisions[i].kind == Division::Kind::kRows) return c.divisions[i].rows;
  return 0;
}

// Whether inputs in `own` are cut into `rows` rows per sample, or are whole and can be cut. Other
// inputs must be whole, or partial sums: these are made whole, because they are small.
bool are_cut(const ShardContext& c, unsigned own, std::int64_t rows) {
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Division& division = c.divisions[i];
    const bool fits = !takes(own, i) ? !division || division == Division::partial()
                      : division     ? division == Division::by_rows(rows)
                                     : has_rows(c.inputs[i], rows * c.samples);
    if (!fits) return false;
  }
  return true;
}

Sharding divided(const ShardContext& c, unsigned own, Division outputs) {
  Sharding sharding{.outputs = std::vector(c.outputs.size(), outputs), .own = {}};
  for (std::size_t i = 0; i < c.inputs.size(); ++i) sharding.own.push_back(takes(own, i));
  return sharding;
}

}  // namespace

Sharding row_shards(const ShardContext& c, unsigned own) {
  const std::int64_t rows = rows_of(c, own);
  const auto fits = [&](const TensorType& type) { return has_rows(type, rows * c.samples); };
  if (rows == 0 || !are_cut(c, own, rows) || !std::ranges::all_of(c.outputs, fits)) return {};
  return divided(c, own, Division::by_rows(rows));
}

Sharding sum_shards(const ShardContext& c, unsigned own) {
  const std::int64_t rows = rows_of(c, own);
  if (rows == 0 || !are_cut(c, own, rows)) return {};
  return divided(c, own, Division::partial());
}

Sharding pointwise_shards(const ShardContext& c) {
  const std::int64_t rows = rows_of(c, ~0u);
  if (rows == 0) return {};
  Sharding sharding{.outputs = std::vector(c.outputs.size(), Division::by_rows(rows)), .own = {}};
  const std::size_t rank = c.outputs[0].shape.rank();
  for (const TensorType& type : c.outputs)
    if (!has_rows(type, rows * c.samples)) return {};
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Shape& shape = c.inputs[i].shape;
    const bool cut = shape.rank() == rank && has_rows(c.inputs[i], rows * c.samples);
    if (c.divisions[i] && !(cut && c.divisions[i] == Division::by_rows(rows))) return {};
    sharding.own.push_back(cut && shape[0] != 1);
  }
  return sharding;
}

Sharding linear_shards(const ShardContext& c) {
  return c.all_partial() ? divided(c, ~0u, Division::partial()) : pointwise_shards(c);
}

Sharding product_shards(const ShardContext& c) {
  const auto is_partial = [](const Division& d) { return d == Division::partial(); };
  const auto parts = std::ranges::count_if(c.divisions, is_partial);
  const auto whole = std::ranges::count(c.divisions, Division());
  if (parts != 1 || parts + whole != std::ssize(c.divisions)) return pointwise_shards(c);
  Sharding sharding{.outputs = {Division::partial()}, .own = {}};
  for (const Division& division : c.divisions) sharding.own.push_back(is_partial(division));
  return sharding;
}

Sharding quotient_shards(const ShardContext& c) {
  // Quotients of integers are rounded, so partial sums would not add up.
  const bool adds_up = !c.divisions[1] && is_floating(c.inputs[0].dtype);
  return adds_up ? product_shards(c) : pointwise_shards(c);
}

Sharding reshaped_shards(const ShardContext& c) {
  if (c.divisions[0].kind == Division::Kind::kPartial) return divided(c, 1, Division::partial());
  const Shape& shape = c.outputs[0].shape;
  if (!c.divisions[0] || shape.rank() == 0 || shape[0] % c.samples != 0) return {};
  return divided(c, 1, Division::by_rows(shape[0] / c.samples));
}

}  // namespace belfry
