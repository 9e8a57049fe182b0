// Plans of graphs on GPUs.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/framework/plan/fused_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_gpu_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kCpu = 0;  // devices of plans with one CPU
constexpr int kGpu0 = 1, kGpu1 = 2;

class GpuPlanTest : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<Device>> devices(Layout layout) {
    return make_devices(on_gpus(layout));
  }
  Plan plan(Layout layout, const std::vector<Fetch>& fetches,
            const std::vector<FeedType>& feeds = {}) {
    made_ = devices(layout);
    return compiled(made_, fetches, feeds);
  }
  template <class F>
  auto on(const DeviceSpec& device, const F& f) {
    DeviceScope scope(graph, device);
    return f();
  }
  // "Copy cpu:0 -> GPU 0", each launch on its strand.
  static std::string text(const Plan& plan, const Launch& launch) {
    const PlanNode& node = plan.node(launch.node);
    return cat(node.op->name, node.inputs.empty() ? "" : cat(" ", plan.device(node.inputs[0])), ">",
               node.device(), " on ", plan.strands[launch.strand].device);
  }
  static std::vector<std::string> texts(const Plan& plan) {
    std::vector<std::string> all;
    for (const Launch& launch : plan.launches) all.push_back(text(plan, launch));
    return all;
  }
  const BufferRecord& input(const Plan& plan, std::size_t launch, std::size_t i = 0) {
    const PlanNode& node = plan.node(plan.launches[launch].node);
    return plan.buffers[plan.buffer(node.inputs[i])];
  }

  test::StandInGpus gpus_{2};
  test::UseGpus use_{gpus_};
  std::vector<std::unique_ptr<Device>> made_;

 public:
  Graph graph;
};

TEST_F(GpuPlanTest, DevicesAreOnTheirPhysicalGpus) {
  const auto four =
      make_devices({.device_count = {{"GPU", 9}}, .logical_gpus = 2, .visible_devices = "1,0"});
  ASSERT_EQ(four.size(), 5u);
  EXPECT_EQ(four[0]->backend, nullptr);
  EXPECT_EQ(four[0]->gpu, -1);
  EXPECT_TRUE(four[0]->memory.on_host());
  for (std::size_t d = 1; d < 5; ++d) {
    EXPECT_EQ(four[d]->backend, &gpus_);
    EXPECT_FALSE(four[d]->declared);
    EXPECT_FALSE(four[d]->memory.on_host());
    EXPECT_EQ(four[d]->gpu, d < 3 ? 1 : 0);
    EXPECT_EQ(four[d]->memory_space, d < 3 ? 1 : 2);
  }
  EXPECT_THAT(
      device_mapping(four),
      HasSubstr("device:GPU:1 -> device: 1, name: Fake, pci bus id: 0000:01:00.0, compute "
                "capability: 9.0\n"
                "/job:localhost/replica:0/task:0/device:GPU:2 -> device: 0, name: Fake, pci "
                "bus id: 0000:00:00.0, compute capability: 9.0\n"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                make_devices({.device_count = {{"GPU", 1}}, .visible_devices = "2"});
              }),
              HasSubstr("there is no GPU 2; this machine has 2"));
}

TEST_F(GpuPlanTest, FeedsOfGpusHaveTwoSlotsThereAndOnTheHost) {
  const auto x = on(gpu(0), [&] { return placeholder(graph, "x", DType::kF32, {4}); });
  const auto label = on(gpu(0), [&] { return placeholder(graph, "label", DType::kF32, {65}); });
  const auto unused = on(gpu(0), [&] { return placeholder(graph, "unused", DType::kF32, {4}); });
  const auto y = on(gpu(1), [&] { return placeholder(graph, "y", DType::kF32, {4}); });
  const Output a = on(gpu(0), [&] {
    const Output first = tanh(x);
    return first + reduce_sum(label);
  });
  const Output b = on(gpu(1), [&] { return tanh(y); });
  const Plan made = plan({2, 1}, {a.node(), b.node(), unused.node()},
                         {{x, {4}}, {label, {65}}, {unused, {4}}, {y, {4}}});
  EXPECT_THAT(texts(made),
              ElementsAre("Tanh 1>1 on 1", "ReduceSum 1>1 on 1", "Add 1>1 on 1", "Tanh 2>2 on 2"));
  ASSERT_EQ(made.feed_slots.size(), 2u);
  const FeedSlots &first = made.feed_slots[0], &second = made.feed_slots[1];
  EXPECT_EQ(first.device, kGpu0);
  EXPECT_EQ(first.gpu, 0);
  EXPECT_EQ(first.bytes, 256 + 512);
  EXPECT_EQ(first.buffers.size(), 2u);
  EXPECT_EQ(made.kept_bytes[kGpu0], first.offset + 2 * first.bytes);
  EXPECT_EQ(second.bytes, 256);
  EXPECT_EQ(made.kept_bytes[kGpu1], second.offset + 2 * second.bytes);
  EXPECT_EQ(first.on_host, 0);
  EXPECT_EQ(second.on_host, 2 * first.bytes);
  EXPECT_EQ(made.kept_bytes[kCpu], 2 * (first.bytes + second.bytes));
  EXPECT_THAT(fed_gpus(made), ElementsAre(0, 1));
  EXPECT_EQ(input(made, 0).kind, BufferKind::kFeed);
  EXPECT_EQ(input(made, 0).offset, first.offset);
  EXPECT_EQ(input(made, 1).offset, first.offset + 256);
}

TEST_F(GpuPlanTest, FeedsOfGpusAreCountedFromTheHostOnce) {
  const auto x = on(gpu(0), [&] { return placeholder(graph, "x", DType::kF32, {4}); });
  const Output y = on(gpu(0), [&] { return tanh(x); });
  const Output z = on(gpu(1), [&] { return tanh(x); });
  const Output w = on(cpu(0), [&] { return tanh(x); });
  const Plan made = plan({2, 1}, {y.node(), z.node(), w.node()}, {{x, {4}}});
  EXPECT_THAT(texts(made), ElementsAre("Tanh 1>1 on 1", "Copy 1>2 on 2", "Tanh 2>2 on 2",
                                       "Copy 1>0 on 1", "Tanh 0>0 on 0"));
  std::vector<std::string> moved;
  for (const TransferRecord& t : made.transfers)
    moved.push_back(cat(t.name, " ", t.from, ">", t.to, " ", t.bytes));
  EXPECT_THAT(moved, ElementsAre("x 0>1 16", "x 1>2 16", "x 1>0 16"));
}

TEST_F(GpuPlanTest, FeedsOfCpusAreCopiedIntoAnArenaOfTheHostOnce) {
  const auto x = on(cpu(0), [&] { return placeholder(graph, "x", DType::kF32, {4}); });
  const Output y = on(gpu(0), [&] { return tanh(x); });
  const Output z = on(gpu(1), [&] { return tanh(x); });
  const Plan made = plan({2, 1}, {y, z}, {{x, {4}}});
  EXPECT_THAT(texts(made), ElementsAre("Copy 0>0 on 0", "Copy 0>1 on 1", "Tanh 1>1 on 1",
                                       "Copy 0>2 on 2", "Tanh 2>2 on 2", "Copy 1>0 on 1",
                                       "Copy 0>0 on 0", "Copy 2>0 on 2", "Copy 0>0 on 0"));
  EXPECT_EQ(input(made, 0).kind, BufferKind::kFeed);
  EXPECT_EQ(input(made, 1).kind, BufferKind::kArena);
  EXPECT_EQ(input(made, 1).device, kCpu);
  EXPECT_TRUE(made.feed_slots.empty());
  for (const Strand& strand : made.strands) EXPECT_EQ(strand.gpu, strand.device - 1);
  for (const Launch& launch : made.launches) {
    const bool on_gpu = made.strands[launch.strand].gpu >= 0;
    EXPECT_EQ(bool(launch.enqueue), on_gpu);
    EXPECT_EQ(bool(launch.run), !on_gpu);
  }
}

TEST_F(GpuPlanTest, OneCopyServesTheLogicalGpusOfAPhysicalOne) {
  const auto x = on(cpu(0), [&] { return fill(graph, {4}, 1); });
  const Output y = on(gpu(0), [&] { return tanh(x); });
  const Output z = on(gpu(1), [&] { return tanh(x) + y; });
  const Plan made = plan({1, 2}, {z.node()});
  EXPECT_THAT(texts(made), ElementsAre("Fill>0 on 0", "Copy 0>1 on 1", "Tanh 1>1 on 1",
                                       "Tanh 2>2 on 2", "Add 2>2 on 2"));
  EXPECT_EQ(made.transfers.size(), 3u);  // x to each GPU, and y
}

TEST_F(GpuPlanTest, ConstantsHaveMemoryInEachGpuThatReadsThem) {
  const auto c = on(cpu(0), [&] { return constant(graph, {1, 2}, {2}); });
  const Output y = on(gpu(0), [&] { return tanh(c) + c; });
  const Output z = on(gpu(1), [&] { return tanh(identity(c)); });
  const Plan made = plan({2, 1}, {y.node(), z.node(), c});
  std::vector<int> devices;
  for (const BufferRecord& record : made.buffers)
    if (record.kind == BufferKind::kConstant) devices.push_back(record.device);
  EXPECT_THAT(devices, ::testing::UnorderedElementsAre(kCpu, kGpu0, kGpu1));
  EXPECT_TRUE(made.transfers.empty());
  for (const Launch& launch : made.launches) {
    const PlanNode& node = made.node(launch.node);
    for (const Value& value : node.inputs)
      EXPECT_EQ(made.buffers[made.buffer(value)].device, node.device()) << node.name();
  }
  for (const int d : {kGpu0, kGpu1}) {
    EXPECT_EQ(made.kept_bytes[at(d)], 256) << d;
    EXPECT_EQ(made.arena_bytes[at(d)], 256) << d;
  }
}

TEST_F(GpuPlanTest, ConstantsOfTheHostBehindAnAliasAreCopiedThroughAnArena) {
  const auto c = on(cpu(0), [&] { return identity(constant(graph, {1, 2}, {2})); });
  const Output y = on(gpu(0), [&] { return tanh(c); });
  EXPECT_THAT(texts(plan({1, 1}, {y.node()})),
              ElementsAre("Copy 0>0 on 0", "Copy 0>1 on 1", "Tanh 1>1 on 1"));
}

TEST_F(GpuPlanTest, CopiesBetweenGpusAreOnTheStrandOfTheirDestination) {
  const auto x = on(gpu(0), [&] { return fill(graph, {4}, 1); });
  const Output y = on(gpu(1), [&] { return tanh(x); });
  EXPECT_THAT(texts(plan({2, 1}, {y.node()})),
              ElementsAre("Fill>1 on 1", "Copy 1>2 on 2", "Tanh 2>2 on 2"));
}

TEST_F(GpuPlanTest, UpdatesAreFusedOnOneGpu) {
  const Towers towers("GPU", 2);
  const Plan made = plan({1, 2}, towers.fetches(), towers.feed_types());
  EXPECT_FALSE(planned(made, kAllReduce));
  const NodeIndex fused = planned(made, kFusedUpdate);
  ASSERT_TRUE(fused);
  const Launch& launch = made.launches[at(launch_of(made, fused))];
  EXPECT_EQ(launch.parts(), 1);
  EXPECT_TRUE(launch.enqueue);
}

TEST_F(GpuPlanTest, UpdatesOnSeveralGpusAreNotFused) {
  const Towers towers("GPU", 2);
  const Plan made = plan({2, 1}, towers.fetches(), towers.feed_types());
  EXPECT_FALSE(planned(made, kFusedUpdate));
  const NodeIndex sum = planned(made, kAllReduce);
  ASSERT_TRUE(sum);
  EXPECT_GE(made.strands[made.launches[at(launch_of(made, sum))].strand].gpu, 0);
  EXPECT_NE(made.buffer({sum, 0}), made.buffer({sum, 1}));
}

// Updates of `count` variables on a GPU. Each applies a placeholder.
struct Updates {
  Updates(GpuPlanTest& test, const DeviceSpec& device, int count) {
    for (int i = 0; i < count; ++i) add(test, device);
  }
  Node& add(GpuPlanTest& test, const DeviceSpec& device, Output gradient = {}) {
    DeviceScope on(test.graph, device);
    const std::string number = cat(*device.type, *device.index, "_", updates.size());
    if (!gradient) {
      gradient = placeholder(test.graph, "g" + number, DType::kF32, {3});
      feeds.push_back({gradient, {3}});
    }
    variables.push_back(variable(test.graph, "v" + number, {3}));
    updates.push_back(&sgd_update(variables.back(), gradient, constant(test.graph, 0.5)));
    return *updates.back();
  }
  std::vector<FeedType> feeds;
  std::vector<Variable> variables;
  std::vector<Node*> updates;
};

std::vector<std::size_t> sizes_of_fused(const Plan& plan) {
  std::vector<std::size_t> sizes;
  for (const PlanNode& node : plan.nodes)
    if (node.fused_update()) sizes.push_back(node.fused_update()->body.size());
  return sizes;
}

TEST_F(GpuPlanTest, UpdatesWithoutACollectiveAreGroupedOnEachGpu) {
  Updates made(*this, gpu(0), 15);
  for (int i = 0; i < 3; ++i) made.add(*this, gpu(1));
  const Fetch train = group(graph, made.updates);
  const Plan plan_of_gpus = plan({1, 2}, {train}, made.feeds);
  EXPECT_THAT(sizes_of_fused(plan_of_gpus), ::testing::UnorderedElementsAre(12, 3, 3));
  for (const PlanNode& node : plan_of_gpus.nodes)
    if (node.fused_update()) {
      EXPECT_EQ(std::ranges::count(node.devices, node.device()), std::ssize(node.devices));
    }
  EXPECT_FALSE(planned(plan_of_gpus, kSgdUpdate));
  Updates on_cpu(*this, cpu(0), 5);
  EXPECT_THAT(sizes_of_fused(plan({1, 1}, {group(graph, on_cpu.updates)}, on_cpu.feeds)),
              ::testing::IsEmpty());
}

TEST_F(GpuPlanTest, UpdatesAreNotGroupedWhereThatWouldMoveARead) {
  Updates made(*this, gpu(0), 2);
  const Output old_value = on(gpu(0), [&] {
    ControlDependencies after(graph, {made.updates[0]});
    return identity(made.variables[1].read());  // no path from the update of that variable
  });
  const Fetch train = group(graph, made.updates);
  EXPECT_THAT(sizes_of_fused(plan({1, 1}, {train}, made.feeds)), ElementsAre(2));
  EXPECT_THAT(sizes_of_fused(plan({1, 1}, {train, old_value}, made.feeds)), ::testing::IsEmpty());
}

TEST_F(GpuPlanTest, UpdatesThatWaitForOthersAreNotGrouped) {
  Updates made(*this, gpu(0), 2);
  {
    ControlDependencies after(graph, {made.updates[0]});
    made.add(*this, gpu(0));
  }
  made.add(*this, gpu(0), on(gpu(0), [&] { return identity(made.variables[2].read()); }));
  const Plan made_plan = plan({1, 1}, {group(graph, made.updates)}, made.feeds);
  EXPECT_THAT(sizes_of_fused(made_plan), ElementsAre(3));
  EXPECT_TRUE(planned(made_plan, kSgdUpdate));
}

TEST_F(GpuPlanTest, UpdatesThatReadAnothersVariableAreNotGrouped) {
  Updates made(*this, gpu(0), 1);
  made.add(*this, gpu(0), static_cast<Output>(made.variables[0]));
  const Plan made_plan = plan({1, 1}, {group(graph, made.updates)}, made.feeds);
  EXPECT_THAT(sizes_of_fused(made_plan), ::testing::IsEmpty());
}

TEST_F(GpuPlanTest, GradientsOfAGroupAreCopiedToItsGpu) {
  Updates made(*this, gpu(0), 1);
  made.add(*this, gpu(0), on(gpu(1), [&] { return fill(graph, {3}, 1); }));
  const Plan made_plan = plan({2, 1}, {group(graph, made.updates)}, made.feeds);
  EXPECT_THAT(sizes_of_fused(made_plan), ElementsAre(2));
  for (const PlanNode& node : made_plan.nodes)
    if (node.fused_update()) {
      for (const Value& input : node.inputs) EXPECT_EQ(made_plan.device(input), kGpu0);
    }
}

TEST_F(GpuPlanTest, CollectivesThatNoDeviceReachesAreRefused) {
  const auto sums = [&](const DeviceSpec& other) {
    const Output a = on(gpu(0), [&] { return fill(graph, {4}, 1); });
    const Output b = on(other, [&] { return fill(graph, {4}, 2); });
    return all_reduce(std::vector{a, b}, {}, "total")[0];
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                plan({1, 1}, {sums(cpu(0))});
              }),
              ::testing::AllOf(HasSubstr("AllReduce 'total'"),
                               HasSubstr("device:GPU:0 does not reach the memory of "),
                               HasSubstr("device:CPU:0")));
  const test::StandInGpus apart(2, false);
  const test::UseGpus use(apart);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                plan({2, 1}, {sums(gpu(1))});
              }),
              HasSubstr("device:GPU:0 does not reach the memory of "));
  EXPECT_NO_THROW(plan({1, 2}, {sums(gpu(1))}));
}

// Sums of two tensors over all GPUs, and a reader of the first tensor's sum on GPU 0.
struct LargeSums {
  LargeSums(GpuPlanTest& test, int towers, std::int64_t elements) {
    std::vector<std::vector<Output>> tensors(2);
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(test.graph, gpu(t));
      tensors[0].push_back(tanh(fill(test.graph, {7}, t)));
      tensors[1].push_back(tanh(fill(test.graph, {elements}, t)));
    }
    for (const auto& of_tensor : tensors) gradients.push_back(of_tensor);
    for (const auto& of_tensor : all_reduce_bucket(tensors)) sums.push_back(of_tensor);
    DeviceScope on(test.graph, gpu(0));
    reader = tanh(sums[0][0]);
  }
  std::vector<Fetch> fetches() const {
    std::vector<Fetch> all{reader.node()};
    for (const Output& sum : sums[1]) all.emplace_back(sum.node());
    return all;
  }
  std::vector<std::vector<Output>> gradients, sums;
  Output reader;
};

TEST_F(GpuPlanTest, SumsOverSeveralGpusAreSharedByTheirCommunicationStrands) {
  const test::StandInGpus four(4);
  const test::UseGpus use(four);
  const LargeSums large(*this, 8, 100'003);
  const Plan made = plan({4, 2}, large.fetches());
  const NodeIndex sum = planned(made, kAllReduce);
  std::vector<int> devices;
  std::int64_t end = 0;
  for (const LaunchIndex l : made.launches.indices()) {
    const Launch& launch = made.launches[l];
    if (launch.node != sum) continue;
    const Strand& strand = made.strands[launch.strand];
    EXPECT_TRUE(strand.communicates);
    devices.push_back(strand.device);
    EXPECT_EQ(launch.range.begin, end);
    EXPECT_EQ(end == 0 || (end - 7) % 64 == 0, true) << "packs of the second tensor are whole";
    end = launch.range.end;
    EXPECT_NEAR(static_cast<double>(launch.range.size()), 100'010 / 4, 64);
    const auto reader = LaunchIndex(launch_of(made, planned(made, large.reader.node())));
    EXPECT_TRUE(made.happens_before(l, reader));
  }
  EXPECT_EQ(end, 100'010);
  EXPECT_THAT(devices, ElementsAre(1, 3, 5, 7)) << "the first device of each GPU";
  for (const int t : {0, 2, 4, 6})
    EXPECT_EQ(made.buffer({sum, 8 + t}),
              made.buffer({planned(made, large.gradients[1][at(t)].node()), 0}))
        << "each GPU has its sum in place";
  std::vector<Segment> graphs = cut_segments(made);
  for (const Segment& segment : graphs)
    for (const LaunchIndex l : segment.launches)
      if (made.launches[l].node == sum) {
        EXPECT_FALSE(segment.is_graph());
      }
}

TEST_F(GpuPlanTest, OneGpuSumsWhatIsSmall) {
  const LargeSums small(*this, 2, 16'377);  // 64 KiB with the other tensor
  const Plan made = plan({2, 1}, small.fetches());
  const NodeIndex sum = planned(made, kAllReduce);
  EXPECT_EQ(std::ranges::count(made.launches, sum, &Launch::node), 1);
  const Launch& launch = made.launches[at(launch_of(made, sum))];
  EXPECT_TRUE(made.strands[launch.strand].communicates) << "so that no backward pass waits for it";
  const LargeSums larger(*this, 2, 16'378);
  const Plan shared = plan({2, 1}, larger.fetches());
  EXPECT_EQ(std::ranges::count(shared.launches, planned(shared, kAllReduce), &Launch::node), 2);
}

TEST_F(GpuPlanTest, TensorsGoByTheHostBetweenGpusThatDoNotReachEachOther) {
  const Output a = on(gpu(0), [&] { return fill(graph, {4}, 1, DType::kF32, "a"); });
  const Output b = on(gpu(1), [&] { return tanh(a, "b"); });
  const Output c = on(gpu(2), [&] { return tanh(a, "c"); });
  const test::StandInGpus apart(3, false);
  const test::UseGpus use(apart);
  const Plan made = plan({3, 1}, {b.node(), c.node()});
  EXPECT_THAT(texts(made), ElementsAre("Fill>1 on 1", "Copy 1>0 on 1", "Copy 0>2 on 2",
                                       "Tanh 2>2 on 2", "Copy 0>3 on 3", "Tanh 3>3 on 3"));
  EXPECT_EQ(made.transfers.size(), 2u);
}

TEST_F(GpuPlanTest, AnOpWithoutAKernelIsNamed) {
  gpus_.lack_kernel("Tanh");
  const Output y = on(gpu(0), [&] { return tanh(fill(graph, {4}, 1, DType::kF64), "y"); });
  EXPECT_THAT(message_of<NotFoundError>([&] {
                plan({1, 1}, {y});
              }),
              ::testing::AllOf(HasSubstr("Tanh 'y' (built at "),
                               HasSubstr("there is no kernel for f64 on "),
                               HasSubstr("device:GPU:0; place it on a CPU")));
}

TEST_F(GpuPlanTest, StrandsOfAPhysicalGpuAreEnqueuedByOneWorkerBehindTheOthers) {
  std::vector<Fetch> fetches;
  for (int i = 0; i < 4; ++i)
    fetches.emplace_back(on(gpu(3 - i), [&] { return fill(graph, {4}, 1); }).node());
  fetches.emplace_back(on(cpu(0), [&] { return fill(graph, {4}, 1); }).node());
  const Plan made = plan({2, 2}, fetches);
  EXPECT_THAT(gpus_of(made), ElementsAre(0, 1));
  EXPECT_EQ(workers_for(made, 8), 1);
  EXPECT_THAT(deal_strands(made, 3), ElementsAre(4, 4, 3, 3, 0));
}

TEST_F(GpuPlanTest, ADryRunPlansTheSameLaunches) {
  const Towers towers("GPU", 2);
  SessionOptions options = on_gpus({2, 1});
  Session real(towers.graph, options);
  options.dry_run = true;
  Session dry(towers.graph, options);
  const Plan& plan = *real.prepare(towers.fetches(), towers.feed_types()).plan();
  const Plan& planned = *dry.prepare(towers.fetches(), towers.feed_types()).plan();
  EXPECT_EQ(texts(plan), texts(planned));
  EXPECT_EQ(plan.arena_bytes[kCpu], planned.arena_bytes[kCpu]);
  EXPECT_EQ(plan.kept_bytes, planned.kept_bytes);
  for (const int d : {kCpu, kGpu0, kGpu1})
    EXPECT_EQ(real.device_use()[at(d)].peak_bytes, dry.device_use()[at(d)].peak_bytes) << d;
}

}  // namespace passes_gpu_test
}  // namespace belfry
