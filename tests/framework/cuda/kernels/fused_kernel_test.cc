// Sums and updates in one kernel give the same bits as the host's FusedUpdate.
#include "belfry/framework/cuda/kernels/fused_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan_kernels/fused_update_kernel.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/cuda/host_queue.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry::cuda {
namespace fused_kernel_test {

using Memory = std::vector<std::vector<std::byte>>;

// A bucket of gradients of `towers` towers, and the updates of each tower's variables; `once`: of
// variables that all share.
class Bucket {
 public:
  Bucket(const std::string& optimizer, int towers, const std::vector<std::int64_t>& sizes,
         bool once = false)
      : devices_(cpu_devices(towers)) {
    std::vector<std::vector<Output>> tensors(sizes.size());
    for (int t = 0; t < towers; ++t) {
      const DeviceScope on(graph_, DeviceSpec::local("CPU", t));
      for (std::size_t b = 0; b < sizes.size(); ++b)
        tensors[b].push_back(placeholder(graph_, "gradient", DType::kF32, {sizes[b]}));
    }
    const auto sums = all_reduce_bucket(tensors, {.mean = towers % 2 == 0});
    std::vector<FeedType> feeds;
    std::vector<Node*> updates;
    for (std::size_t b = 0; b < sizes.size(); ++b)
      for (int t = 0; t < towers; ++t) {
        const DeviceScope on(graph_, DeviceSpec::local("CPU", t));
        const Output& gradient = tensors[b][static_cast<std::size_t>(t)];
        feeds.push_back({gradient, {sizes[b]}});
        if (once && t > 0) continue;
        updates.push_back(
            &update(optimizer == "any" ? kOptimizers[b % std::size(kOptimizers)] : optimizer, b, t,
                    sums[b][static_cast<std::size_t>(t)]));
      }
    const Fetch update(group(graph_, updates));
    PlanContext context = plan_context(devices_, graph_);
    context.options.share_replicas = false;
    plan_ = compile({&update, 1}, feeds, context);
  }

  // Updates on one GPU, which is only declared, without a sum.
  Bucket(const std::string& optimizer, const std::vector<std::int64_t>& sizes)
      : devices_(make_devices({.device_count = {{"CPU", 1}, {"GPU", 1}}, .dry_run = true})) {
    std::vector<FeedType> feeds;
    std::vector<Node*> updates;
    const DeviceScope on(graph_, DeviceSpec::local("GPU", 0));
    for (std::size_t b = 0; b < sizes.size(); ++b) {
      const Output gradient = placeholder(graph_, "gradient", DType::kF32, {sizes[b]});
      feeds.push_back({gradient, {sizes[b]}});
      updates.push_back(&update(optimizer, b, 0, gradient));
    }
    const Fetch update(group(graph_, updates));
    plan_ = compile({&update, 1}, feeds, plan_context(devices_, graph_));
  }

  const Plan& plan() const { return plan_; }
  const PlanNode& node() const {
    return *std::ranges::find(plan_.nodes, &kFusedUpdate, &PlanNode::op);
  }

  // The memory after a run. Each tensor begins `shift` elements behind a multiple of 16 bytes.
  Memory after(const KernelRun& run, std::size_t shift) const {
    const std::vector<TensorType> types = plan_.input_types(node());
    Memory memory;
    std::vector<void*> inputs;
    std::uint32_t bits = 1;
    for (const TensorType& type : types) {
      auto& bytes = memory.emplace_back(static_cast<std::size_t>(type.bytes()) + 64);
      std::byte* const data = aligned(bytes) + 4 * shift * (type.dtype == DType::kF32);
      inputs.push_back(data);
      if (type.dtype == DType::kI64) *reinterpret_cast<std::int64_t*>(data) = 3;
      if (type.dtype != DType::kF32) continue;
      for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
        bits = bits * 1664525 + 1013904223;
        reinterpret_cast<float*>(data)[i] = static_cast<float>(bits >> 8) * 0x1p-24f;
      }
    }
    const std::span outputs(inputs.data(), static_cast<std::size_t>(node().writes()));
    const std::int64_t elements = tensors_of(*node().fused_update()).elements();
    run(KernelPointers(inputs, outputs, nullptr, {0, elements}, 1));
    Memory result;
    for (std::size_t i = 0; i < types.size(); ++i)
      result.emplace_back(static_cast<std::byte*>(inputs[i]),
                          static_cast<std::byte*>(inputs[i]) + types[i].bytes());
    return result;
  }

 private:
  inline static const std::string kOptimizers[] = {"sgd",    "momentum", "adam",    "assign",
                                                   "scaled", "nesterov", "rms_prop"};

  static std::byte* aligned(std::vector<std::byte>& bytes) {
    void* start = bytes.data();
    std::size_t space = bytes.size();
    return static_cast<std::byte*>(std::align(16, 1, start, space));
  }

  Node& update(const std::string& optimizer, std::size_t b, int tower, Output sum) {
    const auto make = [&](const char* name) {
      return variable(graph_, cat(name, b, "_", tower), sum.type().shape,
                      {.initializer = init::constant(1)});
    };
    const Variable w = make("w");
    const Output rate = constant(graph_, 1e-3);
    if (optimizer == "sgd") return sgd_update(w, sum, rate);
    if (optimizer == "sgd_decay") return sgd_update(w, sum, rate, {.weight_decay = 0.1});
    if (optimizer == "momentum") return momentum_update(w, make("m"), sum, rate);
    if (optimizer == "assign") return assign(w, sum);
    if (optimizer == "scaled") return sgd_update(w, {sum, constant(graph_, 0.5)}, rate);
    if (optimizer == "nesterov")
      return momentum_update(w, make("m"), sum, rate,
                             {.weight_decay = 0.1, .form = MomentumForm::kNesterov});
    if (optimizer == "rms_prop")
      return rms_prop_update(w, make("m"), make("v"), sum, rate, {.weight_decay = 0.1});
    if (optimizer == "adagrad")
      return adagrad_update(w, make("m"), sum, rate, {.weight_decay = 0.1});
    if (optimizer == "lion") return lion_update(w, make("m"), sum, rate, {.weight_decay = 0.1});
    const Output norm = constant(graph_, 2, DType::kF64);
    if (optimizer == "lars")
      return lars_update(w, make("m"), norm, norm, sum, rate, {.weight_decay = 0.1});
    const Output step = constant(graph_, 3, DType::kI64);
    if (optimizer == "amsgrad")
      return ams_grad_update(w, make("m"), make("v"), make("most"), step, sum, rate,
                             {.weight_decay = 0.1});
    const double decay = optimizer == "adamw" ? 0.1 : 0;
    return adam_update(w, make("m"), make("v"), step, sum, rate, {.weight_decay = decay});
  }

  Graph graph_;
  std::vector<std::unique_ptr<Device>> devices_;
  Plan plan_;
};

KernelRun on_host(const PlanNode& node) {
  return [run = prepare_fused_kernel(node)](const KernelPointers& p) {
    HostQueue queue;
    run(p, queue);
    queue.check();
  };
}

void expect_host_bits(const Bucket& bucket) {
  const KernelRun host = prepare_fused_update(bucket.plan(), bucket.node(), false);
  const KernelRun gpu = on_host(bucket.node());
  for (const std::size_t shift : {0, 1}) {
    const Memory expected = bucket.after(host, shift);
    EXPECT_NE(expected, bucket.after([](const KernelPointers&) {}, shift));
    EXPECT_TRUE(bucket.after(gpu, shift) == expected) << "shift " << shift;
  }
}

const std::vector<std::int64_t> kSizes = {1, 3, 4, 1023, 1024, 1025, 5000};

TEST(FusedKernel, IsEnteredForEachOpThatGpusFuse) {
  EXPECT_THAT(ops_without_fused_kernel(), testing::IsEmpty());
}

TEST(FusedKernel, GivesTheHostsBitsForEveryOptimizer) {
  for (const std::string optimizer :
       {"sgd", "sgd_decay", "momentum", "nesterov", "rms_prop", "adam", "adamw", "amsgrad",
        "adagrad", "lion", "lars", "assign", "scaled", "any"})
    for (const int towers : {1, 2, 3, 8, 9, 24}) {
      SCOPED_TRACE(cat(optimizer, " of ", towers, " towers"));
      expect_host_bits(Bucket(optimizer, towers, kSizes));
    }
}

// One launch has no room for so many tensors.
TEST(FusedKernel, GivesTheHostsBitsForManyTensors) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 50; ++i) sizes.push_back(1 + 7 * i);
  for (const int towers : {2, 24}) expect_host_bits(Bucket("momentum", towers, sizes));
}

TEST(FusedKernel, GivesTheHostsBitsForSharedReplicas) {
  const Bucket bucket("adam", 8, kSizes, true);
  ASSERT_EQ(bucket.node().fused_update()->body.size(), 1 + kSizes.size());
  expect_host_bits(bucket);
}

// Updates of a GPU without a collective.
TEST(FusedKernel, GivesTheHostsBitsForGroupedUpdates) {
  for (const std::string optimizer : {"sgd", "momentum", "adam", "scaled"})
    expect_host_bits(Bucket(optimizer, kSizes));
}

TEST(FusedKernel, TensorsOfOneOptimizerAreOneLaunch) {
  const Bucket bucket("momentum", 8, {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}, true);
  HostQueue queue;
  const QueueRun run = prepare_fused_kernel(bucket.node());
  bucket.after([&](const KernelPointers& p) { run(p, queue); }, 0);
  EXPECT_EQ(queue.launches(), 1);
}

TEST(FusedKernel, NotesStepsOfAdamThatCannotBe) {
  const Bucket bucket("adam", 2, {100});
  const QueueRun run = prepare_fused_kernel(bucket.node());
  HostQueue queue;
  bucket.after(
      [&](const KernelPointers& p) {
        const std::vector<TensorType> types = bucket.plan().input_types(bucket.node());
        for (std::size_t i = 0; i < types.size(); ++i)
          if (types[i].dtype == DType::kI64) *static_cast<std::int64_t*>(p.mutable_inputs()[i]) = 0;
        run(p, queue);
      },
      0);
  EXPECT_THROW(queue.check(), InvalidArgument);
}

}  // namespace fused_kernel_test
}  // namespace belfry::cuda
