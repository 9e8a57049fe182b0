// Where does each node go? Plans some small programs for GPUs that need not exist and prints the
// device of every node, as TensorFlow 1.15 logs them. Then it runs the same programs and prints
// their values; /gpu:0 is /cpu:1, /gpu:1 is /cpu:2 and so on.
#include <cstdio>

#include "belfry/belfry.h"
using namespace belfry;

// The name of GPU i in the program.
using Gpu = std::function<std::string(int)>;

// Puts variables on one device, and all other nodes on another.
DeviceFunction assign_to_device(DeviceSpec worker, DeviceSpec ps = "/device:CPU:0") {
  return [=](const Node& node) { return node.is_variable() ? ps : worker; };
}

Output matrix(Graph& graph, Shape shape, At at = {}) {
  return constant(graph, Tensor(std::move(shape), std::vector<float>{1, 2, 3, 4, 5, 6}), at);
}

Fetch device_scope(Graph& graph, const Gpu& gpu) {
  DeviceScope on(graph, gpu(0));
  Variable a = variable(graph, "a", {}, {.initializer = init::ones()});
  return sin(a);
}

Fetch placement_function(Graph& graph, const Gpu& gpu) {
  DeviceScope on(graph, assign_to_device(gpu(0)));
  Variable a = variable(graph, "a", {}, {.initializer = init::ones()});
  return sin(a);
}

// The gradient of cos(sin(a)). It runs beside the nodes that it differentiates, or where the placer
// puts it.
Fetch gradient(Graph& graph, const Gpu& gpu, bool colocate) {
  Variable a;
  Output b, c;
  {
    DeviceScope on(graph, assign_to_device(gpu(0)));
    a = variable(graph, "a", {}, {.initializer = init::ones()});
    b = sin(a);
  }
  {
    DeviceScope on(graph, "/CPU:0");
    c = cos(b);
  }
  return gradients(c, {a}, {.colocate = colocate})[0] + c;
}
Fetch colocated_gradient(Graph& graph, const Gpu& gpu) { return gradient(graph, gpu, true); }
Fetch free_gradient(Graph& graph, const Gpu& gpu) { return gradient(graph, gpu, false); }

Fetch no_scope(Graph& graph, const Gpu&) {
  return matmul(matrix(graph, {2, 3}, "a"), matrix(graph, {3, 2}, "b"));
}

Fetch constants_on_the_cpu(Graph& graph, const Gpu&) {
  Output a, b;
  {
    DeviceScope on(graph, "/cpu:0");
    a = matrix(graph, {2, 3}, "a");
    b = matrix(graph, {3, 2}, "b");
  }
  return matmul(a, b);
}

// An assignment goes to the device of its variable, whatever the scope.
Fetch assignment(Graph& graph, const Gpu& gpu) {
  Variable w;
  {
    DeviceScope on(graph, gpu(0));
    w = variable(graph, "w", {2}, {.initializer = init::zeros()});
  }
  DeviceScope on(graph, "/cpu:0");
  Output value = constant(graph, Tensor({2}, std::vector{1.f, 2.f}), "value");
  return assign(w, value).output();
}

Fetch several_gpus(Graph& graph, const Gpu& gpu) {
  std::vector<Output> products;
  for (const int i : {2, 3}) {
    DeviceScope on(graph, gpu(i));
    products.push_back(matmul(matrix(graph, {2, 3}), matrix(graph, {3, 2})));
  }
  DeviceScope on(graph, "/cpu:0");
  return add_n(products);
}

// Each variable goes to the device with the fewest elements.
Fetch least_loaded(Graph& graph, const Gpu& gpu) {
  LeastLoadedDeviceSetter setter(gpu(0), {gpu(0), gpu(1)});
  DeviceScope on(graph, setter);
  std::vector<Output> sums;
  for (const int size : {100, 50, 60, 40, 10})
    sums.push_back(reduce_sum(
        variable(graph, "v" + std::to_string(size), {size}, {.initializer = init::ones()})));
  return add_n(sums);
}

// Variables are read from caches. Small ones are cached on the CPU, each large one on the GPU that
// caches the fewest elements.
Fetch cached_variables(Graph& graph, const Gpu& gpu) {
  OverrideCachingDevice cache({gpu(0), gpu(1)}, "/cpu:0", 1024 * 64);
  VariableScope scope(graph, cache);
  DeviceScope on(graph, "/cpu:0");
  std::vector<Output> sums;
  for (const int size : {100, 70000, 80000})
    sums.push_back(reduce_sum(
        variable(graph, "v" + std::to_string(size), {size}, {.initializer = init::ones()})));
  return add_n(sums);
}

// Batch norm's averages are updated on the CPU. The fetch waits for these updates.
Fetch batch_norm_updates(Graph& graph, const Gpu& gpu) {
  DeviceScope on(graph, gpu(0));
  Tower tower(graph);
  Output x = reshape(matrix(graph, {6}), {3, 2});
  Output loss = reduce_mean(square(batch_norm(tower, "bn", x)));
  return with_dependencies(loss, graph.nodes(kUpdateOps));
}

struct Program {
  const char* title;
  Fetch (*build)(Graph&, const Gpu&);
};
constexpr Program kPrograms[] = {
    {"a variable and its sine on a GPU", device_scope},
    {"a function places variables on the CPU", placement_function},
    {"a gradient beside its forward nodes", colocated_gradient},
    {"a gradient placed freely", free_gradient},
    {"no device named: the first GPU", no_scope},
    {"constants on the CPU", constants_on_the_cpu},
    {"an assignment beside its variable", assignment},
    {"two GPUs and the CPU", several_gpus},
    {"variables where the fewest elements are", least_loaded},
    {"large variables cached on the GPUs", cached_variables},
    {"batch norm's updates on the CPU", batch_norm_updates},
};

// Asks for a device that does not exist.
void missing_device() {
  Graph graph;
  DeviceScope on(graph, "/device:CPU:1");
  Output value = constant(graph, 1.0, DType::kF32, "value");
  try {
    Session(graph).run(value);
  } catch (const InvalidArgument& error) {
    std::printf("%s\n", error.what());
  }
}

int place_all() {
  for (const Program& program : kPrograms) {
    std::printf("\n# %s\n", program.title);
    Graph planned, run;
    Session plan(
        planned,
        {.device_count = {{"CPU", 1}, {"GPU", 4}}, .log_device_placement = true, .dry_run = true});
    plan.prepare(
        {program.build(planned, [](int i) { return "/device:GPU:" + std::to_string(i); })});
    Session session(run, {.device_count = {{"CPU", 5}}});
    const Fetch result =
        program.build(run, [](int i) { return "/device:CPU:" + std::to_string(i + 1); });
    std::printf("%s\n", session.run({result})[0].str().c_str());
  }
  std::printf("\n# a device that is not there\n");
  missing_device();
  return 0;
}

int main(int argc, char** argv) {
  return run_program_without_flags(
      argc, argv,
      "Prints where each node of some small programs goes, planned for GPUs that "
      "need not exist, and what the programs compute. Takes no flags.",
      place_all);
}
