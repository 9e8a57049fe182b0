// A training that fails in the way that --fail names, in the process --fail_rank, at its third
// step. error_fields_test.cc runs it.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "belfry/belfry.h"
#include "belfry/framework/graph/op.h"
using namespace belfry;

namespace {

std::string wanted = "nothing";
std::int64_t wanted_rank = 0;

// An exception that says nothing.
struct Silent : std::exception {
  const char* what() const noexcept override { return ""; }
};

void fail() {
  if (wanted == "op") throw std::runtime_error("the sample is odd");
  if (wanted == "belfry_op") throw InvalidArgument("the sample is odd");
  if (wanted == "silent_op") throw Silent();
  if (wanted == "memory") throw std::bad_alloc();
  if (wanted == "device") throw DeviceError("the fan has stopped");
  if (wanted == "killed") std::raise(SIGKILL);
  if (wanted == "stall") std::this_thread::sleep_for(std::chrono::hours(1));
}

std::vector<Output> odd_gradient(const Node&, std::span<const Output> grads) { return {grads[0]}; }

// Copies its input.
KernelRun odd_kernel(KernelPlan& plan) {
  const bool is_wanted = plan.node().graph().process().rank == wanted_rank;
  return [is_wanted, runs = std::make_shared<int>(0),
          count = plan.input(0).shape.elements()](const KernelPointers& p) {
    if (is_wanted && ++*runs == 3) fail();
    const float* const from = p.input<float>(0);
    std::copy(from, from + count, p.output<float>());
  };
}

const Op kOdd{.name = "Odd",
              .inputs = 1,
              .shape = same_as_input,
              .gradient = odd_gradient,
              .reference = odd_kernel,
              .cpu_only = "it is for tests"};

Output model(Tower& tower, Output x, Output y) {
  if (tower.is_training()) x = tower.graph().add(kOdd, {x}, "odd").output();
  return reduce_mean(square(dense(tower, "fc", x, {.units = 1}) - y));
}

// A data set that fails when a sample of the middle is asked for. Processes compare those at both
// ends before they train.
class OddData final : public Dataset {
 public:
  OddData(const RunDirs& dirs, bool train) : train_(train) {
    if (wanted == "data_dir") names_in_data_dir(local_file_system(), dirs.data_dir + "/none");
  }
  std::vector<Field> signature() const override {
    return {{"x", DType::kF32, {1}}, {"y", DType::kF32, {1}}};
  }
  std::int64_t size() const override { return train_ ? 192 : 256; }
  std::string describe() const override { return train_ ? "odd samples" : "odd tests"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const bool is_middle = indices[i] >= 64 && indices[i] < 128;
      if (is_middle && wanted == (train_ ? "gather" : "evaluation"))
        throw std::runtime_error("the record is odd");
      if (is_middle && train_ && wanted == "gather_file") throw IoError("odd.bin: truncated");
      const float value = wanted == "diverge" ? std::numeric_limits<float>::infinity()
                                              : static_cast<float>(indices[i]) / 256;
      reinterpret_cast<float*>(out[0])[i] = reinterpret_cast<float*>(out[1])[i] = value;
    }
  }

 private:
  const bool train_;
};

// Fails between two steps.
class OddCallback final : public Callback {
 public:
  void setup(Trainer& trainer) override { rank_ = trainer.graph().process().rank; }
  void after_step(Trainer&, const StepInfo& info) override {
    if (info.step != 2 || rank_ != wanted_rank) return;
    if (wanted == "callback") throw std::runtime_error("the step is odd");
    if (wanted == "silent_callback") throw Silent();
    if (wanted == "file_callback") throw IoError("odd.txt: the disk is full");
  }

 private:
  int rank_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return train(
      argc, argv,
      {.model = model,
       .data = [](const RunDirs& dirs,
                  bool train) { return std::make_unique<OddData>(dirs, train); },
       .optimizer = sgd(0.01),
       .batch_size = 4,
       .callbacks = {std::make_shared<OddCallback>()},
       .flags = {
           {.name = "fail", .variable = &wanted, .text = "how", .unit = "HOW"},
           {.name = "fail_rank", .variable = &wanted_rank, .text = "the process", .unit = "N"}}});
}
