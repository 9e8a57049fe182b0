// Races that are planted in kernels show as other results in other orders.
#include "belfry/framework/cuda/kernels/block.h"

#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/neg.h"
#include "belfry/tests/cuda/host_queue.h"

namespace belfry::cuda {
namespace block_test {

constexpr int kThreads = 64, kBlocks = 4, kAll = kThreads * kBlocks;

// `y` has kAll + 1 numbers.
using Body = void (*)(const Block& block, float* shared, float* y);

struct Kernel {
  struct Shared {
    float at[kThreads];
  };
  Body body;
  float* y;

  void operator()(const Block& block, Shared& shared) const { body(block, shared.at, y); }
};

// Order 0 is by number.
std::vector<float> result(Body body, int order) {
  std::vector<float> y;
  for (int i = 0; i <= kAll; ++i) y.push_back(1.0f / static_cast<float>(i + 1));
  const Kernel kernel{body, y.data()};
  const Grid grid{.blocks = kBlocks, .threads = kThreads};
  if (order == 0)
    run_on_host<Kernel>(&kernel, grid, {});
  else
    run_on_host<Kernel>(&kernel, grid, PermutedOrder(order, grid).order());
  return y;
}

// The first order that gives other bits than order 0; none if `kOrders` give the same.
constexpr int kOrders = 100;
std::optional<int> found_by(Body body) {
  const std::vector<float> plain = result(body, 0);
  for (int order = 1; order <= kOrders; ++order)
    if (std::memcmp(plain.data(), result(body, order).data(), plain.size() * sizeof(float)) != 0)
      return order;
  return std::nullopt;
}

std::int64_t first(const Block& block) { return block.index * kThreads; }

struct Named {
  const char* name;
  Body body;
  bool by_shuffles = false;  // the reverse order gives the same
};

const Named kRaces[] = {
    {"a barrier is removed before neighbours are read",
     [](const Block& block, float* shared, float* y) {
       block.each([&](int t) {
         shared[t] = y[first(block) + t];
         y[first(block) + t] = shared[(t + 1) % kThreads];
       });
     }},
    {"barriers are removed from a reduction",
     [](const Block& block, float* shared, float* y) {
       block.each([&](int t) { shared[t] = y[first(block) + t]; });
       block.each([&](int t) {
         for (int half = kThreads / 2; half > 0; half /= 2)
           if (t < half) shared[t] += shared[t + half];
       });
       block.each([&](int t) {
         if (t == 0) y[first(block)] = shared[0];
       });
     }},
    {"the stores of two threads overlap",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) { y[first(block) + t / 2] = static_cast<float>(t); });
     }},
    {"the first and the last of three stores to one place are equal",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) {
         if (t % 20 == 0 && t < 60) y[first(block)] = t == 20 ? 1.0f : 2.0f;
       });
     },
     true},
    {"tiles of blocks overlap by one",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) {
         y[first(block) + t] = static_cast<float>(block.index);
         if (t == kThreads - 1) y[first(block) + kThreads] = -1;
       });
     }},
    {"numbers move along in place",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) { y[first(block) + t] = y[first(block) + t + 1]; });
     }},
    {"a block reads what another wrote",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) {
         if (block.index > 0 && t == 0) y[first(block)] = y[first(block) - kThreads] + 1;
       });
     }},
    {"one block clears what others add to",
     [](const Block& block, float*, float* y) {
       block.each([&](int t) {
         if (block.index == 0) y[t] = 0;
         if (block.index == 1) y[t] += 1;
       });
     }},
    {"threads take the next free place",
     [](const Block& block, float* shared, float* y) {
       block.each([&](int t) {
         if (t == 0) shared[0] = 0;
       });
       block.each(
           [&](int t) { y[first(block) + static_cast<int>(shared[0]++)] = static_cast<float>(t); });
     }},
    {"threads add to one sum in the order in which they come",
     [](const Block& block, float* shared, float* y) {
       block.each([&](int t) {
         if (t == 0) shared[0] = 0;
       });
       block.each([&](int t) { shared[0] += y[first(block) + t]; });
       block.each([&](int t) {
         if (t == 0) y[first(block)] = shared[0];
       });
     }},
};

TEST(RunOnHost, FindsTenPlantedRaces) {
  EXPECT_EQ(std::size(kRaces), 10u);
  for (const auto& [name, body, by_shuffles] : kRaces) {
    const std::optional<int> order = found_by(body);
    ASSERT_TRUE(order) << name;
    EXPECT_EQ(*order > 1, by_shuffles) << name;
  }
}

TEST(RunOnHost, FindsNoRaceInHealthyKernels) {
  const Named healthy[] = {
      {"a reduction",
       [](const Block& block, float* shared, float* y) {
         block.each([&](int t) { shared[t] = y[first(block) + t]; });
         for (int half = kThreads / 2; half > 0; half /= 2)
           block.each([&](int t) {
             if (t < half) shared[t] += shared[t + half];
           });
         block.each([&](int t) {
           if (t == 0) y[first(block)] = shared[0];
         });
       }},
      {"numbers move along",
       [](const Block& block, float* shared, float* y) {
         block.each([&](int t) { shared[t] = y[first(block) + t]; });
         block.each([&](int t) { y[first(block) + t] = shared[(t + 1) % kThreads]; });
       }},
      {"threads store to places of their own",
       [](const Block& block, float*, float* y) {
         block.each([&](int t) { y[t * kBlocks + block.index] = static_cast<float>(t); });
       }},
  };
  for (const Named& kernel : healthy) EXPECT_FALSE(found_by(kernel.body)) << kernel.name;
}

// Blocks race for y; or block 1 needs what block 2 writes to the workspace, as in order 1.
struct Racy {
  using Shared = Nothing;
  bool by_workspace;
  float *y, *workspace;

  void operator()(const Block& block, Shared&) const {
    block.each([&](int) {
      if (!by_workspace) {
        *y = static_cast<float>(block.index);
      } else if (block.index == 1) {
        *y = *workspace;
      } else if (block.index == 2) {
        *workspace = 1;
      }
    });
  }
};

KernelRun racy(const KernelPlan& plan, bool by_workspace, int orders) {
  return in_orders(
      plan,
      [by_workspace](const KernelPointers& p, KernelQueue& queue) {
        const Racy kernel{by_workspace, p.output<float>(), reinterpret_cast<float*>(p.workspace())};
        queue.launch({.function = nullptr,
                      .kernel = &kernel,
                      .grid = {.blocks = 3, .threads = 1},
                      .on_host = &run_on_host<Racy>});
      },
      orders);
}

TEST(InOrders, RefusesKernelsWhoseBitsDependOnTheOrder) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1});
  const TensorType type{Shape{1}, DType::kF32};
  for (const bool by_workspace : {false, true}) {
    KernelPlan plan(neg(x).node(), {&type, 1}, {&type, 1}, {0, 1});
    plan.workspace(sizeof(float));
    float in = 0, out = 0, workspace = 0;
    void *const inputs[] = {&in}, *const outputs[] = {&out};
    const KernelPointers p(inputs, outputs, reinterpret_cast<std::byte*>(&workspace), {0, 1}, 0);
    EXPECT_NO_THROW(racy(plan, by_workspace, 1)(p));
    EXPECT_THROW(racy(plan, by_workspace, 100)(p), InternalError);
  }
}

}  // namespace block_test
}  // namespace belfry::cuda
