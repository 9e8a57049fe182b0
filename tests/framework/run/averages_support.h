// Steps in which moments from GPUs update averages on /cpu:0.
#pragma once
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace averages_test {

inline constexpr Layout kLayouts[] = {{1, 1}, {2, 1}, {1, 4}, {2, 2}};

// Data-parallel training, as with batch norm: means over the towers' batches update averages on
// /cpu:0. Two forms of the step update them by different parts. Both also count on /cpu:0.
struct Averaging {
  Averaging(const std::string& type, int count) {
    {
      DeviceScope on(graph, cpu(0));
      mean = variable(graph, "mean", {3}, {.initializer = init::ones(), .trainable = false});
      spread = variable(graph, "spread", {3}, {.initializer = init::zeros(), .trainable = false});
      counter =
          variable(graph, "counter", Shape{}, {.initializer = init::zeros(), .trainable = false});
    }
    std::vector<Output> gradients_of, means, squares;
    for (int t = 0; t < count; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      VariableOptions matrix{.initializer = init::value(Towers::first_matrix())};
      if (t > 0) matrix.copy_of = &w[0].node();
      x.push_back(placeholder(graph, cat("x", t), DType::kF32, {5, 4}));
      w.push_back(variable(graph, cat("w", t), {4, 3}, matrix));
      const Output y = tanh(matmul(x.back(), w.back()));
      means.push_back(reduce_mean(y, {0}));
      squares.push_back(reduce_mean(square(y), {0}));
      losses.push_back(reduce_mean(square(y - constant(graph, {0.5, -0.5, 0.25}, {3}))));
      gradients_of.push_back(gradients(losses.back(), {w.back()}, {.colocate = true})[0]);
    }
    const auto sums = all_reduce(gradients_of, {.mean = true});
    std::vector<Node*> updates;
    for (std::size_t t = 0; t < w.size(); ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, static_cast<int>(t)));
      updates.push_back(&assign_sub(w[t], sums[t] * 0.1));
    }
    DeviceScope on(graph, cpu(0));
    updates.push_back(&assign_add(counter, constant(graph, 1.0)));
    for (const double part : {0.1, 0.3}) {
      std::vector<Node*> all = updates;
      const Output of_all = add_n(means) * (1.0 / count);
      all.push_back(&assign_sub(mean, (mean - of_all) * part));
      all.push_back(&assign_sub(spread, (spread - add_n(squares)) * part));
      forms.push_back(&group(graph, all));
    }
    twice = mean * 2;
    DeviceScope on_device(graph, DeviceSpec::local(type, 0));
    seen = tanh(matmul(x[0], w[0])) + mean;
  }

  std::vector<FeedType> feed_types() const {
    std::vector<FeedType> types;
    for (const Output& of_tower : x) types.push_back({of_tower, {5, 4}});
    return types;
  }
  // The feeds of step `number`.
  std::vector<Tensor> feeds(int number) const { return feeds_of_towers(x.size(), number); }
  CompiledStep& step(Session& session, std::size_t form = 0) const {
    std::vector<Fetch> fetches(losses.begin(), losses.end());
    fetches.emplace_back(*forms[form]);
    return session.prepare(fetches, feed_types());
  }
  // Steps [begin, end).
  void train(Session& session, int begin, int end) const {
    for (int i = begin; i < end; ++i) step(session).run(feeds(i));
  }
  std::vector<Variable> variables() const {
    std::vector<Variable> all{mean, spread, counter};
    all.insert(all.end(), w.begin(), w.end());
    return all;
  }
  std::vector<Tensor> values(Session& session) const {
    std::vector<Tensor> all;
    for (const Variable v : variables()) all.push_back(session.read(v));
    return all;
  }

  Graph graph;
  std::vector<Output> x, losses;
  std::vector<Variable> w;
  Variable mean, spread, counter;
  std::vector<Node*> forms;
  Output twice, seen;  // made of the mean, on a CPU and on the first device
};

inline SessionOptions cpus(int towers) { return {.device_count = {{"CPU", towers}}, .threads = 1}; }

// The variables after so many steps.
inline std::vector<Tensor> on_cpus(int towers, int steps) {
  const Averaging model("CPU", towers);
  Session session(model.graph, cpus(towers));
  model.train(session, 0, steps);
  return model.values(session);
}

// Stand-in GPUs with a session for `Averaging`.
class Averages : public ::testing::Test {
 protected:
  Session& session(const std::function<void(Plan&)>& hook = {}) {
    SessionOptions options = on_gpus(layout_);
    options.plan_hook = hook;
    return *(session_ = std::make_unique<Session>(model.graph, options));
  }
  std::vector<Tensor> expected(int steps) const { return on_cpus(layout_.devices(), steps); }

  const Layout layout_{1, 2};
  test::StandInGpus gpus_{1};
  test::UseGpus use_{gpus_};
  std::unique_ptr<Session> session_;

 public:
  Averaging model{"GPU", 2};
};

}  // namespace averages_test
}  // namespace belfry
