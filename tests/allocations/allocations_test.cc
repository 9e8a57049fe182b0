// A steady step allocates nothing, and planning allocates as much for each further tower. This
// program replaces malloc and its kin. It counts their calls on all threads, those inside oneDNN
// apart, and the bytes that they have given.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>

#include <gtest/gtest.h>
#include <malloc.h>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/kernels/onednn.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> ours{0}, of_library{0}, of_seam{0};
std::atomic<long> bytes{0}, most_bytes{0};  // in use: more than when counting began
thread_local bool looking = false;          // asking where we are may allocate itself

void count() {
  if (!counting.load(std::memory_order_relaxed) || looking) return;
  looking = true;
  ++(belfry::inside_onednn() ? of_library : ours);
  looking = false;
}

void* taken(void* memory) {
  if (!counting.load(std::memory_order_relaxed) || !memory) return memory;
  const long now = bytes += static_cast<long>(malloc_usable_size(memory));
  if (now > most_bytes) most_bytes = now;
  return memory;
}

void* given_back(void* memory) {
  if (counting.load(std::memory_order_relaxed) && memory)
    bytes -= static_cast<long>(malloc_usable_size(memory));
  return memory;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) noexcept {
  count();
  return taken(__libc_malloc(bytes));
}
void* calloc(std::size_t elements, std::size_t bytes) noexcept {
  count();
  return taken(__libc_calloc(elements, bytes));
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count();
  return taken(__libc_realloc(given_back(memory), bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return taken(__libc_memalign(alignment, bytes));
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return taken(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count();
  *memory = taken(__libc_memalign(alignment, bytes));
  return *memory ? 0 : ENOMEM;
}
void free(void* memory) noexcept { __libc_free(given_back(memory)); }
}

namespace belfry {
namespace {

constexpr std::int64_t kWarmUp = 3, kSteps = 12;

void start() {
  ours = of_library = of_seam = 0;
  bytes = most_bytes = 0;
  set_allocation_hook([](const std::string&, std::size_t) { of_seam += counting ? 1 : 0; });
  counting = true;
}

// Of everything since start().
void expect_no_allocations(const char* what, std::int64_t steps) {
  counting = false;
  set_allocation_hook({});
  EXPECT_EQ(ours, 0) << what;
  EXPECT_EQ(of_seam, 0) << what;
  std::printf("%s: %ld allocations in %ld steps inside oneDNN\n", what, of_library.load(),
              static_cast<long>(steps));
}

TEST(Allocations, AreCounted) {
  start();
  auto kept = std::make_unique<std::vector<int>>(100);
  const Tensor tensor({10}, DType::kF32);
  counting = false;
  set_allocation_hook({});
  EXPECT_EQ(of_seam, 1);
  EXPECT_GE(ours, 4);  // the vector, its elements, the buffer and its block
  EXPECT_EQ(of_library, 0);
}

// Counts over whole steps of a trainer after the first ones: the step, its input and its metrics.
struct Counter final : Callback {
  void after_step(Trainer&, const StepInfo& info) override {
    if (info.step + 1 == kWarmUp) start();
    if (info.step + 1 == kWarmUp + kSteps) counting = false;
  }
};

void train(const char* what, const char* mode, const char* allreduce, Optimizer optimizer,
           int repacking = 0) {
  // Epochs of 5 steps, so that the input is shuffled again meanwhile.
  const auto digits = data::generated_digits(5 * 4 * 8, 1);
  TrainerOptions options{.model = find_model("mnist").model, .optimizer = std::move(optimizer)};
  options.devices.resize(4);
  for (int d = 0; d < 4; ++d)
    options.devices[static_cast<std::size_t>(d)] = DeviceSpec::local("CPU", d);
  options.aggregation.allreduce = allreduce;
  options.aggregation.gradient_repacking = repacking;
  options.batch_size = 8;
  options.epochs = 4;
  options.max_steps = kWarmUp + kSteps;
  options.callbacks = {std::make_shared<Counter>()};
  std::unique_ptr<Trainer> trainer;
  if (std::string_view(mode) == "replicated")
    trainer = std::make_unique<Trainer>(find_trainer("replicated"), options, *digits);
  else
    trainer = std::make_unique<Trainer>(find_trainer("parameter_server"), options, *digits);
  trainer->train();
  expect_no_allocations(what, kSteps);
}

TEST(Allocations, DoNotHappenInStepsOfTheReplicatedTrainer) {
  train("replicated, collective, Adam", "replicated", "collective", adam(1e-3));
  train("replicated, naive, momentum", "replicated", "naive", momentum(0.01));
  train("replicated, hierarchical, SGD", "replicated", "hierarchical", sgd(0.01));
  train("replicated, collective, packed", "replicated", "collective", adam(1e-3), 4);
}

TEST(Allocations, DoNotHappenInStepsOfTheParameterServerTrainer) {
  train("parameter server, Adam", "parameter_server", "colocate", adam(1e-3));
}

// Strands that wait for each other, shared collectives and writes, without any library.
TEST(Allocations, DoNotHappenInASharedCollective) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {100'000});
  const Variable v = variable(graph, "v", {100'000}, {.initializer = init::zeros()});
  std::vector<Output> parts;
  for (int d = 0; d < 4; ++d) {
    DeviceScope on(graph, DeviceSpec::local("CPU", d));
    parts.push_back(add_n({x, v}));
  }
  Node& write = assign(v, all_reduce(parts, {.mean = true})[3]);
  Session session(graph, {.device_count = {{"CPU", 4}}, .threads = 4, .all_workers = true});
  CompiledStep& step =
      session.prepare({Fetch(write), Fetch(write.output())}, {FeedType{x, {100'000}}});
  const Tensor feeds[] = {Tensor({100'000}, std::vector<float>(100'000, 1.f))};
  for (std::int64_t i = 0; i < kWarmUp; ++i) step.run(feeds);
  start();
  for (std::int64_t i = 0; i < 100; ++i) step.run(feeds);
  expect_no_allocations("a shared collective", 100);
  EXPECT_EQ(step.fetched(1).data<float>()[99'999], 103);
  EXPECT_EQ(of_library, 0);
}

// Of building the graph and planning a step on declared GPUs, one tower each.
struct Planned {
  long allocations, most_bytes;
};

Planned planned_on(int towers) {
  const ModelSpec spec = find_model("resnet50", 32);
  const auto data = synthetic_data(spec.fields, spec.classes, towers, 1);
  TrainerOptions options{.model = spec.model, .optimizer = spec.optimizer};
  for (int t = 0; t < towers; ++t) options.devices.push_back(DeviceSpec::local("GPU", t));
  options.batch_size = 1;
  options.session.dry_run = true;
  start();
  const Trainer trainer(find_trainer("replicated"), options, *data);
  counting = false;
  set_allocation_hook({});
  return {ours, most_bytes};
}

TEST(Allocations, OfPlanningAreAsManyForEachFurtherTower) {
  planned_on(1);  // what is made once, such as registries
  const Planned two = planned_on(2), six = planned_on(6), ten = planned_on(10);
  const auto further = [](long few, long many) { return static_cast<double>(many - few) / 4; };
  const double allocations = further(six.allocations, ten.allocations);
  EXPECT_LT(allocations, 1.05 * further(two.allocations, six.allocations));
  EXPECT_LT(allocations, 60'000);
  const double bytes_each = further(six.most_bytes, ten.most_bytes);
  // Memory grows by pieces of twice the size. What is quadratic in towers would make this twice.
  EXPECT_LT(bytes_each, 1.5 * further(two.most_bytes, six.most_bytes));
  EXPECT_LT(bytes_each, 4 << 20);
  std::printf("planning ResNet-50: %.0f allocations and %.2f MiB for each further tower\n",
              allocations, bytes_each / (1 << 20));
}

}  // namespace
}  // namespace belfry
