// Common code of tests of steps on GPUs.
#pragma once
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry {

// A number of physical GPUs, and of logical ones on each.
struct Layout {
  int physical = 1, logical = 1;
  int devices() const { return physical * logical; }
};

inline SessionOptions on_gpus(Layout layout, int cpus = 1) {
  return {.device_count = {{"CPU", cpus}, {"GPU", layout.devices()}},
          .logical_gpus = layout.logical,
          .threads = 1,
          .all_workers = true};
}

// The inputs of towers in step `number`: [5, 4] each.
inline std::vector<Tensor> feeds_of_towers(std::size_t towers, int number) {
  std::vector<Tensor> values;
  for (std::size_t t = 0; t < towers; ++t) {
    values.emplace_back(Shape{5, 4}, DType::kF32);
    for (std::size_t i = 0; i < 20; ++i)
      values.back().mutable_data<float>()[i] =
          static_cast<float>((i * 7 + t * 13 + static_cast<std::size_t>(number) * 5) % 23) / 11 - 1;
  }
  return values;
}

// A step of data-parallel training on GPUs, or on CPUs. Each tower has a matrix, which the mean of
// all gradients updates with momentum. The outputs of the towers update an average on /cpu:0, which
// they read. With `nccl`, NCCL makes the mean.
struct Towers {
  Towers(const std::string& type, int count, bool nccl = false) {
    {
      DeviceScope on(graph, cpu(0));
      average = variable(graph, "average", {3}, {.initializer = init::ones(), .trainable = false});
    }
    std::vector<Output> gradients_of, means;
    for (int t = 0; t < count; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      x.push_back(placeholder(graph, cat("x", t), DType::kF32, {5, 4}));
      w.push_back(
          variable(graph, cat("w", t), {4, 3}, {.initializer = init::value(first_matrix())}));
      slots.push_back(variable(graph, cat("slot", t), {4, 3},
                               {.initializer = init::zeros(), .trainable = false}));
      const Output y = tanh(matmul(x.back(), w.back()) + average);
      means.push_back(reduce_mean(y, {0}));
      losses.push_back(reduce_mean(square(y - constant(graph, {0.5, -0.5, 0.25}, {3}))));
      gradients_of.push_back(gradients(losses.back(), {w.back()}, {.colocate = true})[0]);
    }
    const AllReduceOptions options{.mean = true};
    const auto mean = nccl ? nccl_all_reduce_bucket({&gradients_of, 1}, options)[0]
                           : all_reduce(gradients_of, options);
    std::vector<Node*> updates;
    for (int t = 0; t < count; ++t) {
      const auto i = static_cast<std::size_t>(t);
      DeviceScope on(graph, DeviceSpec::local(type, t));
      updates.push_back(&momentum_update(w[i], slots[i], mean[i], constant(graph, 0.1)));
    }
    DeviceScope on(graph, cpu(0));
    Output seen = average * 0.9;
    for (const Output& of_tower : means) seen = seen + of_tower * 0.05;
    updates.push_back(&assign(average, seen));
    train = &group(graph, updates);
  }

  static Tensor first_matrix() {
    Tensor value({4, 3}, DType::kF32);
    for (std::size_t i = 0; i < 12; ++i)
      value.mutable_data<float>()[i] = 0.1f * static_cast<float>(i) - 0.5f;
    return value;
  }

  std::vector<Fetch> fetches() const {
    std::vector<Fetch> all(losses.begin(), losses.end());
    all.emplace_back(*train);
    return all;
  }
  std::vector<FeedType> feed_types() const {
    std::vector<FeedType> types;
    for (const Output& of_tower : x) types.push_back({of_tower, {5, 4}});
    return types;
  }
  // The feeds of step `number`.
  std::vector<Tensor> feeds(int number) const { return feeds_of_towers(x.size(), number); }
  std::vector<Variable> variables() const {
    std::vector<Variable> all{average};
    all.insert(all.end(), w.begin(), w.end());
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  }
  // Trains some steps. Returns their losses, then the variables.
  std::vector<Tensor> train_in(Session& session, int steps) const {
    std::vector<Tensor> results;
    CompiledStep& step = session.prepare(fetches(), feed_types());
    for (int i = 0; i < steps; ++i) {
      step.run(feeds(i));
      for (std::size_t t = 0; t < losses.size(); ++t)
        results.emplace_back(step.fetched(t).item<float>());
    }
    for (const Variable v : variables()) results.push_back(session.read(v));
    return results;
  }

  Graph graph;
  std::vector<Output> x, losses;
  std::vector<Variable> w, slots;
  Variable average;
  Node* train;
};

// The present values of variables, to be restored later.
class SavedVariables {
 public:
  SavedVariables(Session& session, std::vector<Variable> variables)
      : session_(session), variables_(std::move(variables)) {
    for (const Variable v : variables_) values_.push_back(session.read(v));
  }
  void restore() const {
    std::vector<VariableBytes> all;
    for (std::size_t i = 0; i < values_.size(); ++i)
      all.push_back({variables_[i], {values_[i].raw(), values_[i].bytes()}});
    session_.restore(all, 0);
  }

 private:
  Session& session_;
  std::vector<Variable> variables_;
  std::vector<Tensor> values_;
};

// Makes one launch of a plan, by its number, throw where it runs or is enqueued: "broken at 3".
// Notes which others have begun.
class LaunchFault {
 public:
  void put_into(Plan& plan) {
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      Launch& launch = plan.launches[l];
      if (launch.run)
        launch.run = [this, l, run = launch.run](const KernelPointers& p) {
          check(l);
          run(p);
        };
      else if (launch.enqueue)
        launch.enqueue = [this, l, run = launch.enqueue](const KernelPointers& p,
                                                         GpuStream& stream) {
          check(l);
          run(p, stream);
        };
    }
  }

  // The launches that have begun since the last call.
  std::set<std::size_t> begun() {
    const std::lock_guard lock(mutex_);
    return std::exchange(begun_, {});
  }

  std::atomic<int> broken{-1};

 private:
  void check(std::size_t launch) {
    if (static_cast<int>(launch) == broken) throw DeviceError(cat("broken at ", launch));
    const std::lock_guard lock(mutex_);
    begun_.insert(launch);
  }

  std::mutex mutex_;
  std::set<std::size_t> begun_;
};

// Makes one launch of a plan, by its number, fail when its GPU has finished it.
class StreamFault {
 public:
  void put_into(Plan& plan) {
    for (std::size_t l = 0; l < plan.launches.size(); ++l)
      if (plan.launches[l].enqueue)
        plan.launches[l].enqueue = [this, l, run = plan.launches[l].enqueue](
                                       const KernelPointers& p, GpuStream& stream) {
          test::StandInGpus::enqueue(stream, [this, l] {
            if (static_cast<int>(l) == broken) throw DeviceError("broken");
          });
          run(p, stream);
        };
  }

  std::atomic<int> broken{-1};
};

// Makes a launch of a host check, before it runs and for as long as `patience`, whether a GPU still
// uses its memory. So it finds GPU work that was enqueued too late.
inline void watch_host(const Plan& plan, Launch& launch, const test::StandInGpus& gpus,
                       std::chrono::milliseconds patience = {}) {
  const PlanNode& node = plan.node(launch.node);
  std::vector<std::int64_t> inputs, outputs;
  for (const TensorType& type : plan.input_types(node)) inputs.push_back(type.bytes());
  for (const TensorType& type : node.types) outputs.push_back(type.bytes());
  launch.run = [&gpus, patience, inputs, outputs, writes = at(node.writes()), name = node.name(),
                run = launch.run](const KernelPointers& p) {
    std::vector<test::Access> accesses;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      accesses.push_back(test::accessed(p.mutable_inputs()[i], inputs[i], i < writes));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      accesses.push_back(test::accessed(p.all_outputs()[i], outputs[i], true));
    const auto until = std::chrono::steady_clock::now() + patience;
    gpus.host_uses(name, accesses);
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      gpus.host_uses(name, accesses);
    }
    run(p);
  };
}

inline void watch_hosts(Plan& plan, const test::StandInGpus& gpus) {
  for (Launch& launch : plan.launches)
    if (launch.run) watch_host(plan, launch, gpus);
}

// Checks a trace by scripts/check_trace.
inline void expect_sound(const Trace& trace) {
  const std::string file = temporary_path(".json");
  trace.save(file);
  const Finished done = check_traces({file});
  EXPECT_EQ(done.status, 0) << done.errors;
  local_file_system().remove(file);
}

// The results of some steps on CPUs.
inline std::vector<Tensor> on_cpus(int towers, int steps) {
  const Towers model("CPU", towers);
  Session session(model.graph, {.device_count = {{"CPU", towers}}, .threads = 1});
  return model.train_in(session, steps);
}

}  // namespace belfry
