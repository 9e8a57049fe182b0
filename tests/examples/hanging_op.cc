// Trains on MNIST by a model with two ops that hang when a file says so. lose_processes uses it.
// The file is $HANG_FOLDER/forward.1, or backward.1, with the text "sleep 3" or "compute 3". The op
// of rank 1 removes the file, and then sleeps or computes for 3 s.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "belfry/belfry.h"
#include "belfry/framework/graph/op.h"
using namespace belfry;

namespace {

void hang(const std::string& path) {
  if (!std::filesystem::exists(path)) return;
  std::string how;
  double seconds = 0;
  std::ifstream(path) >> how >> seconds;
  std::filesystem::remove(path);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  if (how == "sleep") std::this_thread::sleep_until(end);
  while (std::chrono::steady_clock::now() < end) {
  }
}

KernelRun hang_kernel(KernelPlan& plan) {
  const char* const folder = std::getenv("HANG_FOLDER");
  const std::string path = (folder ? folder : ".") + std::string("/") + plan.node().op().name +
                           "." + std::to_string(plan.node().graph().process().rank);
  return [path, bytes = plan.input(0).bytes()](const KernelPointers& p) {
    hang(path);
    std::memcpy(p.output<void>(), p.input<void>(0), static_cast<std::size_t>(bytes));
  };
}

std::vector<Output> hang_gradient(const Node&, std::span<const Output> grads);

const Op kForward{.name = "forward",
                  .inputs = 1,
                  .shape = same_as_input,
                  .gradient = hang_gradient,
                  .reference = hang_kernel,
                  .cpu_only = "it is for tests"};
const Op kBackward{.name = "backward",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = "it is for tests",
                   .reference = hang_kernel,
                   .cpu_only = "it is for tests"};

std::vector<Output> hang_gradient(const Node& node, std::span<const Output> grads) {
  return {node.graph().add(kBackward, {grads[0]}, "backward").output()};
}

Output model(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  if (tower.is_training()) x = tower.graph().add(kForward, {x}, "forward").output();
  Output logits = dense(tower, "fc0", flatten(x), {.units = 10});
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

}  // namespace

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = model, .data = data::mnist, .optimizer = adam(1e-3), .epochs = 3});
}
