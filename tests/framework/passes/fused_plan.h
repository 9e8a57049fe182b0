// Common code of tests of pass `fuse`.
#pragma once
#include <cstring>
#include <numeric>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/cast.h"

namespace belfry::test {

inline std::multiset<std::string> ops_of(const Plan& plan) {
  std::multiset<std::string> names;
  for (const PlanNode& node : plan.nodes) names.insert(node.op->name);
  return names;
}

// Prepares a step with feed x, whose first dimension is the batch.
inline CompiledStep& prepared(Session& session, const std::vector<Fetch>& fetches, Output x) {
  return session.prepare(fetches, std::vector{FeedType{x, x.shape(), 0}});
}

inline Tensor with_dtype(const Tensor& tensor, DType dtype) {
  Graph graph;
  Session session(graph);
  return dtype == tensor.dtype() ? tensor : session.run(cast(constant(graph, tensor), dtype));
}

// Feeds x and fetches all, with and without the pass. The bits must be equal, and arenas no larger.
inline void expect_same_when_fused(const Graph& graph, Output x, const std::vector<Fetch>& fetches,
                                   SessionOptions options) {
  Tensor values(x.shape(), DType::kF32);
  int next = 0;
  for (float& value : values.mutable_data<float>())
    value = static_cast<float>(next++ * 7 % 24) / 8 - 1;
  values = with_dtype(values, x.dtype());
  std::vector<Tensor> results[2];
  std::int64_t bytes[2];
  for (const bool fuses : {false, true}) {
    options.fuse = fuses;
    Session session(graph, options);
    CompiledStep& step = prepared(session, fetches, x);
    step.run(std::vector{values});
    for (std::size_t i = 0; i < fetches.size(); ++i) {
      results[fuses].push_back(step.fetched(i));
      results[fuses].back().mutable_raw();  // gets memory of its own
    }
    const auto& arenas = step.plan()->arena_bytes;
    bytes[fuses] = std::accumulate(arenas.begin(), arenas.end(), std::int64_t{0});
  }
  for (std::size_t i = 0; i < fetches.size(); ++i)
    EXPECT_TRUE(results[0][i] == results[1][i])
        << name_of(x.dtype()) << ", " << options.shards_per_device << " shards, fetch " << i;
  EXPECT_LE(bytes[1], bytes[0]) << name_of(x.dtype());
}

}  // namespace belfry::test
