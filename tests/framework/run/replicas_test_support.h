// Towers with a replica of one variable each, for tests of passes that join replicas.
#pragma once
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {

// Tower t has "w" and its slot "m" on cpu:t, and a gradient as feed. The mean of gradients updates
// all.
struct Replicas {
  explicit Replicas(int towers, std::int64_t size = 3, DType dtype = DType::kF32) {
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, cpu(t));
      const std::string prefix = t == 0 ? "" : cat("tower", t, "/");
      const ReplicaScope replica(graph, prefix, t);
      const auto make = [&](const char* name, const Initializer& initializer, auto& all) {
        VariableOptions options{.dtype = dtype, .initializer = initializer};
        if (t > 0) options.copy_of = &all[0].node();
        all.push_back(variable(graph, prefix + name, {size}, options));
      };
      make("w", init::ones(), w);
      make("m", init::zeros(), m);
      gradients.push_back(placeholder(graph, "gradient", dtype, {size}));
    }
    means = all_reduce(gradients, {.mean = true});
    for (std::size_t t = 0; t < w.size(); ++t) {
      DeviceScope on(graph, cpu(static_cast<int>(t)));
      const Output rate = constant(graph, 0.5, dtype);
      updates.push_back(&momentum_update(w[t], m[t], means[t], rate, {.momentum = 0.5}));
    }
    step = &group(graph, updates);
  }

  std::vector<FeedType> feed_types() const {
    std::vector<FeedType> types;
    for (const Output& gradient : gradients) types.push_back({gradient, gradient.shape()});
    return types;
  }
  SessionOptions options(bool fuse, bool share, int threads = 0) const {
    return {.device_count = {{"CPU", static_cast<int>(w.size())}},
            .fuse = fuse,
            .share_replicas = share,
            .threads = threads};
  }

  Graph graph;
  std::vector<Variable> w, m;
  std::vector<Output> gradients, means;
  std::vector<Node*> updates;
  Node* step = nullptr;
};

}  // namespace belfry
