// A model of two variables on K towers, for tests of the verifier. Tests look for lines that are
// made up here. Variables are built in model.cc, lines 41 (w) and 42 (b). Gradients of tower t are
// built in grad.cc, lines 50 + t (w) and 60 + t (b). Reductions are built in reduce.cc:70, and
// updates of tower t in update.cc, lines 80 + t.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/updates/sgd_update.h"

namespace belfry {

using Rows = std::vector<std::vector<Gradient>>;
using Values = std::vector<std::vector<Output>>;

// A strategy from a function.
class Given final : public Strategy {
 public:
  explicit Given(std::function<Values(const GradientTable&)> make) : make_(std::move(make)) {}

 private:
  Values sum(const GradientTable& grads) const override { return make_(grads); }
  std::function<Values(const GradientTable&)> make_;
};

struct TwoVariables {
  // The shape of gradients is unknown before a step, or has `known` elements.
  explicit TwoVariables(int towers, DType dtype = DType::kF32, std::int64_t known = kUnknownSize) {
    const std::int64_t size = known == kUnknownSize ? 4 : known;
    elements = {size};
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, DeviceSpec(cat("/cpu:", t)));
      const std::string tower = cat("tower", t, "/");
      ReplicaScope replica(graph, tower, t);
      NameScope names(graph, tower);
      const auto add = [&](const char* name, unsigned line, unsigned gradient_line) {
        VariableOptions options{.dtype = dtype, .initializer = init::zeros()};
        if (t > 0) options.collections = {std::string(kLocalVariables)};
        const Variable v = variable(graph, t == 0 ? name : tower + name, {size}, options,
                                    SourceLine{"model.cc", line});
        const SourceLine site{"grad.cc", gradient_line + static_cast<unsigned>(t)};
        // The input is a feed, as for a loss, so each step gives its real shape.
        inputs.push_back(placeholder(graph, cat(name, "_input"), dtype, Shape({known}), site));
        const Output x = inputs.back();
        return Gradient{mul(x, x, At(cat(name, "_grad"), site)), v};
      };
      rows.push_back({add("w", 41, 50), add("b", 42, 60)});
    }
  }

  GradientTable table() const { return GradientTable(rows); }

  GradientTable reduce(const Strategy& strategy, Reduction reduction = Reduction::kSum) const {
    return strategy.reduce(table(), {.reduction = reduction}, SourceLine{"reduce.cc", 70});
  }
  GradientTable reduce(std::string_view strategy) const { return reduce(*make_strategy(strategy)); }
  // Reduces by a strategy that gives what `make` returns.
  GradientTable reduce(std::function<Values(const GradientTable&)> make) const {
    return reduce(Given(std::move(make)));
  }

  // Reduces two parts by a collective.
  GradientTable reduce_packed() const {
    return make_strategy("collective")
        ->reduce(table(), {.reduction = Reduction::kSum, .packing = {.parts = 2}},
                 SourceLine{"reduce.cc", 70});
  }

  // variable -= gradient, on tower t.
  Node& update(int t, Variable variable, Output gradient) {
    const SourceLine site{"update.cc", 80 + static_cast<unsigned>(t)};
    ColocateWith beside(variable.ref());
    return sgd_update(variable, gradient, constant(graph, 1.0, variable.dtype(), site), {}, site);
  }
  // Updates of all variables on all towers.
  std::vector<Fetch> updates(const GradientTable& combined) {
    std::vector<Fetch> all;
    for (int t = 0; t < combined.towers(); ++t)
      for (const Gradient& g : combined.row(t)) all.emplace_back(update(t, g.variable, g.value));
    return all;
  }

  // Compiles a step in which input i has elements[i] (cyclically), and in which `replaced` outputs
  // are fed, too.
  void compile(const std::vector<Fetch>& fetches, const std::vector<Output>& replaced = {},
               bool soft = false) const {
    std::vector<FeedType> feeds;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      feeds.push_back({inputs[i], {elements[i % elements.size()]}});
    for (const Output& output : replaced) feeds.push_back({output, {4}});
    Session session(graph, {.device_count = {{"CPU", static_cast<int>(rows.size())}},
                            .allow_soft_placement = soft});
    session.prepare(fetches, feeds);
  }

  Graph graph;
  Rows rows;
  std::vector<Output> inputs;  // by tower: the inputs of w's gradient and b's
  std::vector<std::int64_t> elements;
};

// A mistake, and the words of its error: the variable, lines, and what is wrong.
struct Way {
  std::string name;
  std::function<void()> run;
  std::vector<std::string> says;
};

inline std::string name_of_way(const testing::TestParamInfo<Way>& info) { return info.param.name; }

inline void expect_refused(const Way& way) {
  std::string message = "nothing was thrown";
  try {
    way.run();
  } catch (const InvalidArgument& error) {
    message = error.what();
  }
  for (const std::string& part : way.says) EXPECT_THAT(message, testing::HasSubstr(part));
}

}  // namespace belfry
