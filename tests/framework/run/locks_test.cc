// Runs of one session beside each other: LockDuration::kEachVariable.
#include <algorithm>
#include <atomic>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/run_lock.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace locks_test {

constexpr int kThreads = 4;
constexpr int kRuns = 200;
constexpr std::int64_t kElements = 4096;
constexpr PrepareOptions kApart{.locks = LockDuration::kEachVariable};

// Calls f(t) on thread t of kThreads at the same time.
template <class F>
void at_once(const F& f) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&f, t] { f(t); });
}

bool all_equal(const Tensor& tensor) {
  const auto values = tensor.data<float>();
  return std::ranges::all_of(values, [&](float x) { return x == values[0]; });
}

Variable large(Graph& graph, const char* name) {
  return variable(graph, name, {kElements}, {.initializer = init::zeros()});
}

// For each thread, a node that adds one to every element.
std::vector<Node*> increments(Graph& graph, Variable v) {
  std::vector<Node*> nodes;
  for (int t = 0; t < kThreads; ++t) nodes.push_back(&assign_add(v, fill(graph, {kElements}, 1)));
  return nodes;
}

TEST(Locks, NoIncrementIsLostAndNoCopyIsTorn) {
  Graph graph;
  const Variable v = large(graph, "v");
  std::vector<Output> seen;
  for (int t = 0; t < kThreads; ++t) seen.push_back(add_n({v, fill(graph, {kElements}, 0)}));
  const std::vector<Node*> adds = increments(graph, v);
  Session session(graph);
  std::vector<CompiledStep*> steps;
  for (std::size_t t = 0; t < kThreads; ++t)
    steps.push_back(&session.prepare({seen[t], *adds[t]}, {}, kApart));
  std::atomic<int> torn{0};
  at_once([&](int t) {
    CompiledStep& step = *steps[static_cast<std::size_t>(t)];
    for (int i = 0; i < kRuns; ++i) {
      step.run();
      torn += !all_equal(step.fetched(0));
    }
  });
  EXPECT_EQ(torn, 0);
  const Tensor end = session.read(v);
  EXPECT_TRUE(all_equal(end));
  EXPECT_EQ(end.data<float>()[0], kThreads * kRuns);
  EXPECT_EQ(session.step(), std::uint64_t{kThreads * kRuns});
}

TEST(Locks, WhatAWriteGivesToItsRunIsWhatItLeft) {
  Graph graph;
  const Variable counter =
      variable(graph, "counter", {}, {.dtype = DType::kI64, .initializer = init::zeros()});
  const Output one = constant(graph, 1, DType::kI64);
  std::vector<Output> counts;
  for (int t = 0; t < kThreads; ++t) counts.push_back(assign_add(counter, one).output());
  Session session(graph);
  std::vector<CompiledStep*> steps;
  for (const Output& count : counts) steps.push_back(&session.prepare({count}, {}, kApart));
  std::vector<std::vector<std::int64_t>> numbers(kThreads);
  at_once([&](int t) {
    for (int i = 0; i < kRuns; ++i) {
      CompiledStep& step = *steps[static_cast<std::size_t>(t)];
      step.run();
      numbers[static_cast<std::size_t>(t)].push_back(step.fetched(0).item<std::int64_t>());
    }
  });
  std::vector<std::int64_t> all;
  for (const auto& of_thread : numbers) {
    EXPECT_TRUE(std::ranges::is_sorted(of_thread));
    all.insert(all.end(), of_thread.begin(), of_thread.end());
  }
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], static_cast<std::int64_t>(i) + 1);  // each number once
}

TEST(Locks, WhatAFusedUpdateGivesToItsRunIsWhatItLeft) {
  constexpr int kMany = 25 * kRuns;  // a run takes some microseconds
  Graph graph;
  const Variable counter = variable(graph, "counter", {1}, {.initializer = init::zeros()});
  const Output half = fill(graph, {1}, 0.5);
  std::vector<Output> counts;
  for (int t = 0; t < kThreads; ++t) {
    const Output one = all_reduce(std::vector{half, half})[0];
    counts.push_back(sgd_update(counter, one, constant(graph, -1.0, DType::kF32)).output());
  }
  Session session(graph);
  std::vector<CompiledStep*> steps;
  for (const Output& count : counts) {
    steps.push_back(&session.prepare({count}, {}, kApart));
    EXPECT_EQ(std::ranges::count(steps.back()->plan()->nodes, &kFusedUpdate, &PlanNode::op), 1);
  }
  std::vector<std::vector<float>> numbers(kThreads);
  at_once([&](int t) {
    for (int i = 0; i < kMany; ++i) {
      CompiledStep& step = *steps[static_cast<std::size_t>(t)];
      step.run();
      numbers[static_cast<std::size_t>(t)].push_back(step.fetched(0).data<float>()[0]);
    }
  });
  std::vector<float> all;
  for (const auto& of_thread : numbers) all.insert(all.end(), of_thread.begin(), of_thread.end());
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], static_cast<float>(i + 1));  // each number once
}

TEST(Locks, WritesOfSeveralVariablesInAnyOrderDoNotBlockEachOther) {
  Graph graph;
  const Variable v = large(graph, "v"), w = large(graph, "w");
  const Output gradient = fill(graph, {kElements}, 1);
  const Output rate = constant(graph, 0.5);
  std::vector<Node*> updates;
  for (int t = 0; t < kThreads; ++t) {
    const bool swapped = t % 2 == 1;
    updates.push_back(
        &momentum_update(swapped ? w : v, swapped ? v : w, gradient, rate, {.momentum = 0.5}));
  }
  Session session(graph);
  std::vector<CompiledStep*> steps;
  for (Node* update : updates) steps.push_back(&session.prepare({*update}, {}, kApart));
  at_once([&](int t) {
    for (int i = 0; i < kRuns; ++i) steps[static_cast<std::size_t>(t)]->run();
  });
  EXPECT_TRUE(all_equal(session.read(v)));  // because each update is whole
  EXPECT_TRUE(all_equal(session.read(w)));
  EXPECT_EQ(session.step(), std::uint64_t{kThreads * kRuns});
}

TEST(Locks, ARunThatIsAloneSeesNoStepByHalvesAndIsNotStarved) {
  Graph graph;
  const Variable v = large(graph, "v"), w = large(graph, "w");
  const std::vector<Node*> to_v = increments(graph, v), to_w = increments(graph, w);
  const Output both = add_n({v, w});
  Session session(graph);
  std::vector<CompiledStep*> steps;
  for (std::size_t t = 0; t < kThreads; ++t)
    steps.push_back(&session.prepare({*to_v[t], *to_w[t]}, {}, kApart));
  CompiledStep& look = session.prepare({v, w, both});
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      while (!stop) steps[t]->run();
    });
  for (int i = 0; i < 50; ++i) {
    look.run();
    EXPECT_EQ(look.fetched(0), look.fetched(1));
    EXPECT_TRUE(all_equal(look.fetched(2)));
    EXPECT_TRUE(all_equal(session.read(v)));
  }
  stop = true;
  threads.clear();
  EXPECT_EQ(session.read(v), session.read(w));
  EXPECT_EQ(session.read(v).data<float>()[0], static_cast<float>(session.step()));
}

TEST(Locks, OneStepRunsOnceAtATimeWhoeverCallsIt) {
  Graph graph;
  const Variable v = large(graph, "v");
  Session session(graph);
  CompiledStep& step = session.prepare({*increments(graph, v)[0]}, {}, kApart);
  at_once([&](int) {
    for (int i = 0; i < kRuns; ++i) step.run();
  });
  EXPECT_EQ(session.read(v).data<float>()[0], kThreads * kRuns);
}

TEST(Locks, RunsBesideEachOtherHaveDifferentRandomNumbers) {
  Graph graph;
  const Output noise = random_uniform(graph, {}, 0, 1, DType::kF64);
  const Variable v = large(graph, "v");
  std::vector<CompiledStep*> steps;
  Session session(graph);
  for (Node* add : increments(graph, v))
    steps.push_back(&session.prepare({noise, *add}, {}, kApart));
  std::vector<std::vector<double>> drawn(kThreads);
  at_once([&](int t) {
    for (int i = 0; i < kRuns; ++i) {
      steps[static_cast<std::size_t>(t)]->run();
      drawn[static_cast<std::size_t>(t)].push_back(
          steps[static_cast<std::size_t>(t)]->fetched(0).item<double>());
    }
  });
  std::vector<double> all;
  for (const auto& of_thread : drawn) all.insert(all.end(), of_thread.begin(), of_thread.end());
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(Locks, StepsOfBothKindsGiveTheSameValues) {
  Graph graph;
  const Variable v = large(graph, "v");
  const Output noise = random_uniform(graph, {kElements}, 0, 1);
  Node& update = assign_add(v, noise);
  Session alone(graph), apart(graph);
  for (int i = 0; i < 3; ++i) {
    alone.run({update});
    apart.prepare({update}, {}, kApart).run();
  }
  EXPECT_EQ(alone.read(v), apart.read(v));
  EXPECT_EQ(alone.step(), apart.step());
}

// The kernel throws if its input is negative.
KernelRun picky_kernel(KernelPlan&) {
  return [](const KernelPointers& p) {
    require<DeviceError>(p.input<float>(0)[0] >= 0, "picky");
    p.output<float>()[0] = p.input<float>(0)[0];
  };
}
const Op kPickyTest{.name = "PickyTest",
                    .inputs = 1,
                    .shape = same_as_input,
                    .no_gradient = "it is for tests",
                    .reference = picky_kernel};

TEST(Locks, AfterAFailureAmidWritesLaterRunsThrowItsErrorUntilARestore) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1});
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  const Variable w = variable(graph, "w", {1}, {.initializer = init::zeros()});
  Node& first = assign_add(v, x);
  Output picky;
  {
    const ControlDependencies after(graph, {first});
    picky = graph.add(kPickyTest, {x}, "picky").output();
  }
  Node& second = assign_add(w, picky);
  Node& other = assign_add(w, fill(graph, {1}, 1));
  Session session(graph);
  CompiledStep& fails = session.prepare({second}, {{x, {1}}}, kApart);
  CompiledStep& works = session.prepare({other}, {}, kApart);
  const Tensor bad = floats({-1}), good = floats({1});
  works.run();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(message_of<DeviceError>([&] { fails.run({&bad, 1}); }), "picky");
    EXPECT_EQ(message_of<DeviceError>([&] { works.run(); }), "picky");
    EXPECT_FALSE(session.intact());
    EXPECT_THROW(session.run({v}), InvalidArgument);
    session.write(v, good);
    session.write(w, good);
    works.run();
    fails.run({&good, 1});
    EXPECT_EQ(session.read(w), floats({3}));
  }
}

TEST(RunLock, LetsSharersInTogetherAndOthersAlone) {
  RunLock lock;
  std::atomic<int> inside{0}, wrong{0};
  at_once([&](int t) {
    for (int i = 0; i < kRuns; ++i) {
      if (t == 0) {
        const std::lock_guard alone(lock);
        wrong += inside != 0;
      } else {
        const std::shared_lock shared(lock);
        ++inside;
        --inside;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  const std::shared_lock one(lock);
  std::jthread([&] { const std::shared_lock two(lock); }).join();  // does not block
}

}  // namespace locks_test
}  // namespace belfry
