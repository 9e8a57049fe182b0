#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/placement/explain.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/framework/run/replicas_test_support.h"

namespace belfry {
namespace passes_fuse_updates_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Plan plan_of(const Replicas& made, const std::vector<Fetch>& fetches, bool fuse = true) {
  const auto devices = cpu_devices(static_cast<int>(made.w.size()));
  PlanContext context = plan_context(devices, made.graph);
  context.options.fuse = fuse;
  context.options.share_replicas = false;
  return compile(fetches, made.feed_types(), context);
}

int count(const Plan& plan, const Op& op) {
  return static_cast<int>(std::ranges::count(plan.nodes, &op, &PlanNode::op));
}

TEST(FuseUpdates, AnAllReduceAndItsUpdatesBecomeOneLaunch) {
  const Replicas made(3);
  const Plan plan = plan_of(made, {*made.step});
  EXPECT_EQ(count(plan, kFusedUpdate), 1);
  EXPECT_EQ(count(plan, kAllReduce), 0);
  EXPECT_EQ(count(plan, kMomentumUpdate), 0);
  const PlanNode& fused = plan.node(planned(plan, kFusedUpdate));
  EXPECT_EQ(fused.writes(), 6);
  EXPECT_EQ(fused.types.size(), 6u);
  EXPECT_EQ(fused.inputs.size(), 6u + 3 + 3);  // variables, gradients, rates
  EXPECT_EQ(fused.name(), cat(made.means[0].node().name(), "/update"));
}

TEST(FuseUpdates, AreExplained) {
  const Replicas made(3);
  const auto explained = [&](const Node& node, bool fuse) {
    Explanation result;
    explain_step(node, plan_of(made, {*made.step}, fuse), result);
    return result;
  };
  const Node& sum = made.means[0].node();
  for (const Node* node : std::vector<const Node*>{&sum, made.updates[1]}) {
    const Explanation fused = explained(*node, true), apart = explained(*node, false);
    EXPECT_EQ(fused.fused_into, cat("FusedUpdate ", sum.name(), "/update"));
    EXPECT_EQ(fused.runs, 1);
    EXPECT_EQ(apart.fused_into, "");
    EXPECT_EQ(apart.runs, 1);
  }
}

TEST(FuseUpdates, CountsTheTransfersOfTheAllReduce) {
  const Replicas made(4);
  const auto records = [&](bool fuse) {
    std::multiset<std::tuple<std::string, int, int, std::int64_t>> all;
    for (const TransferRecord& record : plan_of(made, {*made.step}, fuse).transfers)
      all.emplace(record.name, record.from, record.to, record.bytes);
    return all;
  };
  EXPECT_EQ(records(true).size(), 6u);
  EXPECT_EQ(records(true), records(false));
}

TEST(FuseUpdates, ASumThatIsFetchedStaysByItself) {
  const Replicas made(2);
  EXPECT_EQ(count(plan_of(made, {*made.step, made.means[1]}), kFusedUpdate), 0);
}

TEST(FuseUpdates, ASumThatAnotherNodeReadsStaysByItself) {
  Replicas made(2);
  const Output norm = made.means[0] * made.means[0];
  EXPECT_EQ(count(plan_of(made, {*made.step, norm}), kFusedUpdate), 0);
}

TEST(FuseUpdates, AReadAfterOneUpdateKeepsItsVersion) {
  Replicas made(2);
  Output read;
  {
    ControlDependencies after(made.graph, {made.updates[0]});
    read = identity(made.w[1].read());  // no path leads here from the update of w[1]
  }
  EXPECT_EQ(count(plan_of(made, {*made.step, read}), kFusedUpdate), 0);
}

TEST(FuseUpdates, WhatIsAddedToVariablesIsAddedAsItIsSummed) {
  Graph graph;
  const Variable a = variable(graph, "a", {2}, {.initializer = init::zeros()}),
                 b = variable(graph, "b", {2}, {.initializer = init::ones()});
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const auto sums = all_reduce(std::vector{x, x + x});
  const Output first = assign_add(a, sums[0]).output(), second = assign_add(b, sums[1]).output();
  Session session(graph, {.threads = 1});
  CompiledStep& step = session.prepare({first, second}, {{x, {2}}});
  EXPECT_EQ(count(*step.plan(), kFusedUpdate), 1);
  EXPECT_EQ(count(*step.plan(), kAssignAdd), 0);
  for (int i = 0; i < 2; ++i) step.run(std::vector{Tensor({2}, std::vector{1.f, 2.f})});
  EXPECT_EQ(step.fetched(0), Tensor({2}, std::vector{6.f, 12.f}));
  EXPECT_EQ(step.fetched(1), Tensor({2}, std::vector{7.f, 13.f}));
}

TEST(FuseUpdates, UpdatesThatWaitForEachOtherStayApart) {
  Graph graph;
  const Variable a = variable(graph, "a", {2}), b = variable(graph, "b", {2});
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const auto sums = all_reduce(std::vector{x, x});
  const Output rate = constant(graph, 1.0, DType::kF32);
  Node& first = sgd_update(a, sums[0], rate);
  ControlDependencies after(graph, {&first});
  Node& second = sgd_update(b, sums[1], rate);
  const auto devices = cpu_devices(1);
  const PlanContext context = plan_context(devices, graph);
  EXPECT_EQ(count(compile(std::vector<Fetch>{second}, std::vector<FeedType>{{x, {2}}}, context),
                  kFusedUpdate),
            0);
}

TEST(FuseUpdates, TwoFusionsThatWouldWaitForEachOtherAreGivenUp) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const Output rate = constant(graph, 1.0, DType::kF32);
  std::vector<Variable> v;
  for (const char* name : {"a0", "a1", "b0", "b1"}) v.push_back(variable(graph, name, {2}));
  const auto a = all_reduce(std::vector{x, x}), b = all_reduce(std::vector{x, x});
  Node& a0 = sgd_update(v[0], a[0], rate);
  Node& b1 = sgd_update(v[3], b[1], rate);
  Node *a1, *b0;
  {
    ControlDependencies after(graph, {&b1});
    a1 = &sgd_update(v[1], a[1], rate);
  }
  {
    ControlDependencies after(graph, {&a0});
    b0 = &sgd_update(v[2], b[0], rate);
  }
  const auto devices = cpu_devices(1);
  const PlanContext context = plan_context(devices, graph);
  const Plan plan = compile(std::vector<Fetch>{*a1, *b0}, std::vector<FeedType>{{x, {2}}}, context);
  EXPECT_EQ(count(plan, kFusedUpdate), 0);
  EXPECT_EQ(count(plan, kSgdUpdate), 4);
}

TEST(FuseUpdates, AWriteWithoutAnOrderIsRefusedWithTheUsersUpdate) {
  Replicas made(2);
  for (const std::size_t t : {0u, 1u}) {
    Node& second = assign(made.m[t], made.gradients[t]);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  plan_of(made, {*made.step, second});
                }),
                AllOf(HasSubstr(made.updates[t]->describe().str()),
                      HasSubstr(second.describe().str()), Not(HasSubstr("AllReduce"))));
  }
}

// The values of the first elements of `variables` after one run of `updates`, fused if allowed.
std::vector<float> after_a_run(const Graph& graph, const std::vector<Node*>& updates, bool fuse,
                               const std::vector<Variable>& variables) {
  Session session(graph, {.fuse = fuse});
  std::vector<Fetch> fetches;
  for (Node* update : updates) fetches.emplace_back(*update);
  CompiledStep& step = session.prepare(fetches);
  EXPECT_EQ(count(*step.plan(), kFusedUpdate), 0);
  step.run();
  std::vector<float> values;
  for (const Variable variable : variables)
    values.push_back(session.read(variable).data<float>()[0]);
  return values;
}

TEST(FuseUpdates, WhatAnotherTensorOfTheBucketReadsIsNotWrittenBefore) {
  Graph graph;
  const Variable a = variable(graph, "a", {3000}, {.initializer = init::constant(1)});
  const Variable b = variable(graph, "b", {3000}, {.initializer = init::constant(10)});
  const Output of_a = a, of_b = b;
  const std::vector<std::vector<Output>> bucket{{of_a, of_a}, {of_b, of_b}};
  const auto sums = all_reduce_bucket(bucket);
  const std::vector<Node*> swap{&assign(b, sums[0][0]), &assign(a, sums[1][0])};
  for (const bool fuse : {false, true})
    EXPECT_EQ(after_a_run(graph, swap, fuse, {a, b}), (std::vector<float>{20, 2}));
}

TEST(FuseUpdates, WhatAnUpdateTakesBesideItsSumIsNotWrittenBefore) {
  for (const std::size_t rate_at : {0, 1}) {
    Graph graph;
    const Variable rate = variable(graph, "rate", {}, {.initializer = init::constant(1)});
    const Variable w = variable(graph, "w", {3000}, {.initializer = init::zeros()});
    const Output before = rate, gradient = fill(graph, {3000}, 5);
    std::vector<std::vector<Output>> bucket{{gradient, gradient}};
    bucket.insert(bucket.begin() + static_cast<std::ptrdiff_t>(rate_at), {before, before});
    const auto sums = all_reduce_bucket(bucket);
    const std::vector<Node*> updates{&assign(rate, sums[rate_at][0]),
                                     &sgd_update(w, sums[1 - rate_at][0], before)};
    for (const bool fuse : {false, true})
      EXPECT_EQ(after_a_run(graph, updates, fuse, {rate, w}), (std::vector<float>{2, -10}));
  }
}

TEST(FuseUpdates, CountsTheTransfersOfWhatUpdatesTakeBesideTheirSums) {
  constexpr int kTowers = 3;
  Graph graph;
  const Output rate = placeholder(graph, "rate", DType::kF32, {});  // on cpu:0
  std::vector<FeedType> feeds{{rate, {}}};
  std::vector<Output> gradients;
  for (int t = 0; t < kTowers; ++t) {
    DeviceScope on(graph, cpu(t));
    gradients.push_back(placeholder(graph, "gradient", DType::kF32, {5}));
    feeds.push_back({gradients.back(), {5}});
  }
  const auto sums = all_reduce(gradients);
  std::vector<Fetch> updates;
  for (int t = 0; t < kTowers; ++t) {
    DeviceScope on(graph, cpu(t));
    const Variable w = variable(graph, cat("w", t), {5});
    updates.emplace_back(sgd_update(w, sums[static_cast<std::size_t>(t)], rate));
  }
  const auto devices = cpu_devices(kTowers);
  const auto records = [&](bool fuse) {
    PlanContext context = plan_context(devices, graph);
    context.options.fuse = fuse;
    const Plan plan = compile(updates, feeds, context);
    EXPECT_EQ(count(plan, kFusedUpdate), fuse ? 1 : 0);
    std::multiset<std::tuple<std::string, int, int, std::int64_t>> all;
    for (const TransferRecord& record : plan.transfers)
      all.emplace(record.name, record.from, record.to, record.bytes);
    return all;
  };
  EXPECT_EQ(records(false).count({"rate", 0, 1, 4}), 1u);
  EXPECT_EQ(records(false).size(), 4u + 2);
  EXPECT_EQ(records(true), records(false));
}

TEST(FuseUpdates, AnUpdateOnAnotherDeviceThanItsSumCountsTheTransferAndNeedsTheSameMemory) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const auto sums = all_reduce(std::vector{x, x});
  DeviceScope on(graph, cpu(1));
  const std::vector<Fetch> update{assign(variable(graph, "w", {2}), sums[0])};
  const std::vector<FeedType> feeds{{x, {2}}};
  auto devices = cpu_devices(2);
  PlanContext context = plan_context(devices, graph);
  for (const bool fuse : {false, true}) {
    context.options.fuse = fuse;
    const Plan plan = compile(update, feeds, context);
    EXPECT_EQ(count(plan, kFusedUpdate), fuse ? 1 : 0);
    ASSERT_EQ(plan.transfers.size(), 1u);
    EXPECT_EQ(plan.transfers[0].name, sums[0].name());
    EXPECT_EQ(plan.transfers[0].to, 1);
  }
  devices[1]->memory_space = 1;
  EXPECT_EQ(count(compile(update, feeds, context), kFusedUpdate), 0);
}

// The kernel asks for scratch memory, which a part of a fused update does not get.
KernelRun greedy_kernel(KernelPlan& plan) {
  plan.workspace(64);
  return [](const KernelPointers&) {};
}
const Op kGreedyTest{.name = "GreedyTest",
                     .inputs = 2,
                     .shape = same_as_input,
                     .no_gradient = "it is for tests",
                     .split = WorkSplit::kElements,
                     .writes = 1,
                     .elementwise_input = 1,
                     .reference = greedy_kernel};

TEST(FuseUpdates, KernelsThatNeedScratchMemoryAreRefused) {
  Graph graph;
  const Variable v = variable(graph, "v", {4});
  const Output x = fill(graph, {4}, 1);
  Node& update = graph.add(kGreedyTest, {v.ref(), all_reduce(std::vector{x, x})[0]}, "greedy");
  Session session(graph);
  EXPECT_THAT(message_of<InternalError>([&] { session.prepare({update}); }),
              ::testing::HasSubstr("GreedyTest 'greedy'"));
}

TEST(FuseUpdates, DevicesThatAreOnlyDeclaredKeepTheirNodes) {
  Graph graph;
  std::vector<Output> x;
  std::vector<Variable> v;
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, DeviceSpec::local("GPU", t));
    v.push_back(variable(graph, cat("v", t), {2}));
    x.push_back(placeholder(graph, "x", DType::kF32, {2}));
  }
  const auto sums = all_reduce(x);
  std::vector<Node*> updates;
  for (std::size_t t = 0; t < 2; ++t) updates.push_back(&assign(v[t], sums[t]));
  Session session(graph, {.device_count = {{"GPU", 2}}, .dry_run = true});
  const CompiledStep& step = session.prepare({group(graph, updates)}, {{x[0], {2}}, {x[1], {2}}});
  EXPECT_EQ(count(*step.plan(), kAllReduce), 1);
}

TEST(FuseUpdates, PlacementKnowsTheNodesThatWereFused) {
  const Replicas made(2);
  Session session(made.graph, made.options(true, false));
  session.prepare(std::vector<Fetch>{*made.step}, made.feed_types());
  EXPECT_EQ(session.placement(made.updates[1]->output()),
            DeviceSpec("/job:localhost/replica:0/task:0/device:CPU:1"));
  EXPECT_EQ(session.placement(made.means[0]),
            DeviceSpec("/job:localhost/replica:0/task:0/device:CPU:0"));
}

// Values whose sums depend on the order of addition.
Tensor values(std::int64_t size, int seed, DType dtype) {
  Tensor tensor({size}, dtype);
  visit_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < size; ++i)
      tensor.mutable_data<T>()[static_cast<std::size_t>(i)] = static_cast<T>(
          std::sin(static_cast<double>(i * 31 + seed * 17)) * std::pow(10.0, (i + seed) % 7));
  });
  return tensor;
}

struct Case {
  const char* optimizer;
  int towers;
  std::int64_t size;
  DType dtype;
  bool mean;
};

class FusedBits : public ::testing::TestWithParam<Case> {
 protected:
  // The variables after three steps.
  static std::vector<Tensor> run(const Case& c, bool fuse, int threads, bool reference) {
    Graph graph;
    std::vector<Output> gradients;
    for (int t = 0; t < c.towers; ++t) {
      DeviceScope on(graph, cpu(t));
      gradients.push_back(placeholder(graph, "gradient", c.dtype, {c.size}));
    }
    const auto sums = all_reduce(gradients, {.mean = c.mean});
    std::vector<Variable> all;
    std::vector<Node*> updates;
    for (int t = 0; t < c.towers; ++t) {
      DeviceScope on(graph, cpu(t));
      const auto make = [&](const char* name) {
        all.push_back(variable(graph, cat(name, t), {c.size},
                               {.dtype = c.dtype, .initializer = init::uniform(-1, 1)}));
        return all.back();
      };
      updates.push_back(&update(c, make, sums[static_cast<std::size_t>(t)]));
    }
    Session session(graph, {.device_count = {{"CPU", c.towers}},
                            .fuse = fuse,
                            .reference_kernels = reference,
                            .threads = threads,
                            .all_workers = true});
    std::vector<FeedType> types;
    std::vector<Tensor> feeds;
    for (const Output& gradient : gradients) {
      types.push_back({gradient, {c.size}});
      feeds.push_back(values(c.size, static_cast<int>(feeds.size()), c.dtype));
    }
    CompiledStep& step = session.prepare(std::vector<Fetch>{group(graph, updates)}, types);
    EXPECT_EQ(count(*step.plan(), kFusedUpdate), fuse ? 1 : 0);
    for (int i = 0; i < 3; ++i) step.run(feeds);
    std::vector<Tensor> results;
    for (const Variable v : all) results.push_back(session.read(v));
    return results;
  }

  template <class Make>
  static Node& update(const Case& c, const Make& make, Output sum) {
    Graph& graph = sum.graph();
    const Output rate = constant(graph, 1e-3, c.dtype);
    const std::string name = c.optimizer;
    const Variable w = make("w");
    if (name == "sgd") return sgd_update(w, sum, rate);
    if (name == "assign") return assign(w, sum);
    const Variable m = make("m");
    if (name == "rms_prop")
      return rms_prop_update(w, make("s"), m, sum, rate, {.momentum = 0.5, .weight_decay = 0.01});
    if (name == "nesterov")
      return momentum_update(w, m, sum, rate,
                             {.weight_decay = 0.01, .form = MomentumForm::kNesterov});
    if (name == "momentum") return momentum_update(w, m, sum, rate, {.momentum = 0.9});
    if (name == "adagrad") return adagrad_update(w, m, sum, rate, {.weight_decay = 0.01});
    if (name == "lion") return lion_update(w, m, sum, rate, {.weight_decay = 0.01});
    if (name == "lars") {
      const Output norm = constant(graph, 2, DType::kF64);
      return lars_update(w, m, norm, norm, sum, rate, {.weight_decay = 0.01});
    }
    const Variable steps = variable(graph, cat("steps", sum.index()), {},
                                    {.dtype = DType::kI64, .initializer = init::zeros()});
    const Output step = assign_add(steps, constant(graph, 1, DType::kI64)).output();
    if (name == "amsgrad")
      return ams_grad_update(w, m, make("v"), make("most"), step, sum, rate,
                             {.weight_decay = 0.01});
    const double decay = name == "adamw" ? 0.01 : 0;
    return adam_update(w, m, make("v"), step, sum, rate, {.weight_decay = decay});
  }
};

TEST_P(FusedBits, AreThoseOfTheNodesApart) {
  const Case& c = GetParam();
  const std::vector<Tensor> apart = run(c, false, 1, false);
  for (const int threads : {1, 2}) {
    const std::vector<Tensor> fused = run(c, true, threads, false);
    ASSERT_EQ(fused.size(), apart.size());
    for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_TRUE(fused[i] == apart[i]) << i;
  }
  const std::vector<Tensor> plain = run(c, true, 1, true), plain_apart = run(c, false, 1, true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i] == plain_apart[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, FusedBits,
    ::testing::Values(
        Case{"sgd", 2, 1, DType::kF32, false}, Case{"sgd", 3, 70001, DType::kF32, true},
        Case{"momentum", 2, 4096, DType::kF32, true}, Case{"momentum", 8, 4099, DType::kF32, true},
        Case{"momentum", 5, 30011, DType::kF64, false},
        Case{"nesterov", 3, 20003, DType::kF32, true},
        Case{"rms_prop", 4, 20001, DType::kF32, true},
        Case{"rms_prop", 2, 4099, DType::kF64, false}, Case{"amsgrad", 4, 20001, DType::kF32, true},
        Case{"adagrad", 3, 20001, DType::kF32, true}, Case{"lion", 4, 20002, DType::kF32, true},
        Case{"lars", 2, 4099, DType::kF64, false}, Case{"adamw", 4, 20002, DType::kF32, true},
        Case{"adam", 4, 20000, DType::kF32, true}, Case{"adam", 3, 2049, DType::kF64, true},
        Case{"assign", 8, 12345, DType::kF32, false},
        Case{"assign", 2, 1 << 17, DType::kF32, false}),
    [](const auto& test) {
      return cat(test.param.optimizer, test.param.towers, "x", test.param.size,
                 name_of(test.param.dtype));
    });

TEST(FuseUpdates, AnAllReduceOfVariablesIsMadeInPlace) {
  constexpr int kTowers = 3;
  constexpr std::int64_t kSize = 50000;
  Graph graph;
  std::vector<Variable> v;
  std::vector<Output> reads;
  for (int t = 0; t < kTowers; ++t) {
    DeviceScope on(graph, cpu(t));
    v.push_back(variable(graph, cat("v", t), {kSize}, {.initializer = init::constant(t + 1)}));
    reads.push_back(v.back());
  }
  const auto sums = all_reduce(reads);
  std::vector<Node*> writes;
  for (std::size_t t = 0; t < v.size(); ++t) writes.push_back(&assign(v[t], sums[t]));
  Session session(graph, {.device_count = {{"CPU", kTowers}}});
  CompiledStep& step = session.prepare({group(graph, writes)});
  EXPECT_EQ(step.plan()->arena_bytes, std::vector<std::int64_t>(kTowers, 0));
  step.run();
  step.run();
  for (const Variable variable : v) {
    const Tensor value = session.read(variable);
    EXPECT_EQ(std::ranges::count(value.data<float>(), 18.0f), kSize);
  }
}

}  // namespace passes_fuse_updates_test
}  // namespace belfry
