#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/tests/framework/passes/random_graph.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_memory_test {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// uses[b]: the launches that touch buffer b.
std::vector<std::vector<std::size_t>> uses_of_buffers(const Plan& plan) {
  std::vector<std::vector<std::size_t>> uses(plan.buffers.size());
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const Launch& launch = plan.launches[l];
    for (const Value& input : plan.node(launch.node).inputs)
      uses[index(plan.buffer(input).value())].push_back(l);
    for (const BufferIndex buffer : plan.buffer_of[launch.node])
      uses[index(buffer.value())].push_back(l);
    if (plan.workspaces[l]) uses[index(plan.workspaces[l].value())].push_back(l);
  }
  return uses;
}

// Expects that two buffers in one place are used one after the other.
void expect_orderly_reuse(const Plan& plan, unsigned seed) {
  const auto before = happens_before(plan);
  const auto uses = uses_of_buffers(plan);
  const auto all_before = [&](std::size_t a, std::size_t b) {
    for (const std::size_t first : uses[a])
      for (const std::size_t second : uses[b])
        if (!before[second][first]) return false;
    return true;
  };
  int overlaps = 0;
  for (std::size_t a = 0; a < plan.buffers.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const BufferRecord &x = plan.buffers[a], &y = plan.buffers[b];
      if (x.kind != BufferKind::kArena || y.kind != BufferKind::kArena || x.device != y.device)
        continue;
      if (x.offset >= y.offset + y.bytes || y.offset >= x.offset + x.bytes) continue;
      ++overlaps;
      ASSERT_TRUE(all_before(a, b) || all_before(b, a)) << seed;
    }
  EXPECT_GT(overlaps, 0) << "nothing is reused";
}

TEST(Memory, BuffersThatOverlapAreNeverUsedAtOnce) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomGraph random(seed, 1 + static_cast<int>(seed % 4), 80);
    const auto devices = cpu_devices(4);
    expect_orderly_reuse(compiled(devices, random.fetches), seed);
  }
}

// GPUs share the sums, which are larger than 64 KiB.
TEST(Memory, BuffersOfGpusThatOverlapAreNeverUsedAtOnce) {
  const test::StandInGpus gpus(3);
  const test::UseGpus use(gpus);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<DeviceSpec> towers{gpu(0), gpu(1), gpu(2)};
    RandomGraph random(seed, towers, towers, 60, 130);
    const auto devices = make_devices(on_gpus({3, 1}));
    expect_orderly_reuse(compiled(devices, random.fetches), seed);
  }
}

TEST(Memory, EveryBufferLiesInItsArenaAndIsAligned) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomGraph random(seed, 3, 60, 6);
    const auto devices = cpu_devices(3);
    const Plan plan = compiled(devices, random.fetches);
    const auto uses = uses_of_buffers(plan);
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const BufferRecord& buffer = plan.buffers[b];
      if (buffer.kind != BufferKind::kArena || uses[b].empty()) continue;
      EXPECT_EQ(buffer.offset % 64, 0);
      EXPECT_GE(buffer.offset, 0);
      EXPECT_LE(buffer.offset + buffer.bytes, plan.arena_bytes[index(buffer.device)]);
    }
  }
}

// A value that is written over an input must find no other reader of it, now or later.
TEST(Memory, AValueIsOverwrittenByItsLastUserOnly) {
  int overwritten = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomGraph random(seed, 1 + static_cast<int>(seed % 4), 80);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    const auto before = happens_before(plan);
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      const NodeIndex n = plan.launches[l].node;
      for (std::size_t i = 0; i < plan.nodes[n].types.size(); ++i) {
        const BufferIndex buffer = plan.buffer_of[n][i];
        if (plan.buffers[buffer].kind != BufferKind::kArena) continue;
        // Every other launch that reads the buffer either reads this value, later, or is done.
        for (std::size_t other = 0; other < plan.launches.size(); ++other) {
          if (other == l) continue;
          for (const Value& input : plan.node(plan.launches[other].node).inputs) {
            if (plan.buffer(input) != buffer) continue;
            if (root_of(plan, input) == Value{n, static_cast<int>(i)}) {
              ASSERT_TRUE(before[other][l]);
            } else if (!before[other][l]) {
              ++overwritten;
              ASSERT_TRUE(before[l][other]) << seed;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(overwritten, 0) << "nothing is done in place";
}

// A variable may take its new value early if nobody reads the old value from then on.
TEST(Memory, AVariableIsWrittenEarlyWhereNobodyNeedsItsOldValue) {
  int early = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomGraph random(seed, 1 + static_cast<int>(seed % 4), 80);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    const auto before = happens_before(plan);
    for (std::size_t write = 0; write < plan.launches.size(); ++write) {
      const PlanNode& node = plan.node(plan.launches[write].node);
      if (node.op != &kAssign || !same_memory(plan, node.inputs[0], node.inputs[1])) continue;
      ++early;
      const Value variable = root_of(plan, node.inputs[0]);
      const int begin = launch_of(plan, root_of(plan, node.inputs[1]).node);
      ASSERT_GE(begin, 0);
      for (std::size_t other = 0; other < plan.launches.size(); ++other) {
        if (other == write || other == index(begin)) continue;
        for (const Value& input : plan.node(plan.launches[other].node).inputs) {
          if (root_of(plan, input) != variable) continue;
          ASSERT_TRUE(before[index(begin)][other] || before[other][write]) << seed;
        }
      }
    }
  }
  EXPECT_GT(early, 0);
}

class PeakTest : public ::testing::Test {
 protected:
  std::int64_t peak(const std::vector<Fetch>& fetches) {
    const auto devices = cpu_devices(1);
    return compiled(devices, fetches).arena_bytes[0];
  }
  Output kilobyte() { return fill(graph, {256}, 1); }
  Graph graph;
};

TEST_F(PeakTest, OfAChainInPlaceIsOneTensor) {
  Output x = kilobyte();
  for (int i = 0; i < 5; ++i) x = tanh(x);
  EXPECT_EQ(peak({x}), 1024);
}

TEST_F(PeakTest, WhatHasNoInputsIsMadeWhereItIsFetched) {
  const Output x = kilobyte();
  EXPECT_EQ(peak({x}), 0);
  EXPECT_EQ(peak({x, x, tanh(x)}), 1024) << "tanh, which is copied";
}

TEST_F(PeakTest, OfAChainThatCannotBeInPlaceIsTwo) {
  Output x = random_uniform(graph, {16, 16});
  for (int i = 0; i < 5; ++i) x = transpose(x);
  EXPECT_EQ(peak({x}), 2048);
}

TEST_F(PeakTest, CountsAllInputsThatAreNeededTogether) {
  const Output a = kilobyte(), b = kilobyte(), c = kilobyte();
  EXPECT_EQ(peak({add_n({a, b, c})}), 3072);  // the sum overwrites one of them
}

TEST_F(PeakTest, AValueThatIsUsedLaterIsNotOverwritten) {
  const Output a = kilobyte();
  const Output b = tanh(a);
  EXPECT_EQ(peak({add_n({b, a})}), 2048);
  const Output c = identity(a);  // an alias holds its owner's memory
  EXPECT_EQ(peak({add_n({tanh(a), c})}), 2048);
}

TEST_F(PeakTest, AValueUsedTwiceByOneNodeIsNotOverwritten) {
  const Output a = kilobyte();
  EXPECT_EQ(peak({add_n({a, a})}), 2048);
}

TEST_F(PeakTest, ResultsOfABucketAreOneTensorEachInPlace) {
  std::vector<std::vector<Output>> tensors;
  for (const std::int64_t elements : {256, 128}) {
    tensors.emplace_back();
    for (int t = 0; t < 3; ++t) tensors.back().push_back(random_uniform(graph, {elements}));
  }
  const auto sums = all_reduce_bucket(tensors);
  const auto devices = cpu_devices(1);
  const Plan plan = compiled(devices, {sums[0][0], sums[1][2]});
  EXPECT_EQ(plan.arena_bytes[0], 3 * (1024 + 512));
  const std::vector<BufferIndex>& buffers = plan.buffer_of[planned(plan, sums[0][0].node())];
  for (const std::size_t t : {1, 2}) {
    EXPECT_EQ(buffers[t], buffers[0]);
    EXPECT_EQ(buffers[3 + t], buffers[3]);
  }
  for (const std::size_t b : {0, 1})
    EXPECT_EQ(buffers[3 * b], plan.buffer({planned(plan, tensors[b][0].node()), 0}));
}

TEST_F(PeakTest, WhatIsAssignedIsMadeInItsVariable) {
  const Variable v = variable(graph, "v", {16, 16});
  EXPECT_EQ(peak({assign(v, random_uniform(graph, {16, 16}))}), 0);
  EXPECT_EQ(peak({assign(v, tanh(tanh(v.read())))}), 0) << "element by element over the old value";
  EXPECT_EQ(peak({assign(v, transpose(v.read()))}), 1024) << "which reads other elements";
}

TEST_F(PeakTest, WhatIsAssignedToTwoVariablesIsMadeInOne) {
  const Output value = random_uniform(graph, {256});
  std::vector<Fetch> writes;
  for (const char* name : {"v", "w"})
    writes.emplace_back(assign(variable(graph, name, {256}), value));
  EXPECT_EQ(peak(writes), 0);
}

TEST_F(PeakTest, AnOldValueThatIsReadLaterKeepsItsMemory) {
  const Variable v = variable(graph, "v", {256});
  const Output first = random_uniform(graph, {256});
  const Output old = tanh(v.read());
  const Output second = random_uniform(graph, {256});
  EXPECT_EQ(peak({assign(v, first), old}), 2048);
  EXPECT_EQ(peak({assign(v, second), old}), 1024) << "it has been read before";
}

TEST_F(PeakTest, AVariableThatIsWrittenTwiceIsTheSecondValueAlone) {
  const Variable v = variable(graph, "v", {16, 16});
  Node& first = assign(v, random_uniform(graph, {16, 16}));
  const ControlDependencies after(graph, std::vector<Node*>{&first});
  EXPECT_EQ(peak({assign(v, random_uniform(graph, {16, 16}))}), 1024);
}

TEST_F(PeakTest, RunsThatLockEachVariableWriteItInItsWriteAlone) {
  const Variable v = variable(graph, "v", {256});
  const Fetch write(assign(v, random_uniform(graph, {256})));
  const auto devices = cpu_devices(1);
  PlanContext context = plan_context(devices, graph);
  context.locks = LockDuration::kEachVariable;
  EXPECT_EQ(compile({&write, 1}, {}, context).arena_bytes[0], 1024);
}

TEST_F(PeakTest, SizesAreRoundedToCacheLines) {
  EXPECT_EQ(peak({tanh(fill(graph, {1}, 1))}), 64);
  EXPECT_EQ(peak({tanh(fill(graph, {17}, 1))}), 128);
}

TEST_F(PeakTest, VariablesFeedsConstantsAndFetchesAreOutside) {
  const Variable v = variable(graph, "v", {256}, {.initializer = init::ones()});
  EXPECT_EQ(peak({v, assign_add(v, constant(graph, Tensor({256}, DType::kF32)))}), 0);
}

}  // namespace passes_memory_test
}  // namespace belfry
