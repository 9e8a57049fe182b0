// Writes what ops compute for scripts/compare_with_torch. README.md says what.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "belfry/belfry.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/tests/bench/onnx_test_data.h"
#include "belfry/tests/bench/op_values/op_cases.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/program.h"

namespace belfry::bench {
namespace {

constexpr int kUses = 20;

using NamedTensors = std::map<std::string, Tensor>;

std::vector<Output> floating(std::span<const Output> outputs) {
  std::vector<Output> result;
  for (const Output& output : outputs)
    if (is_floating(output.dtype())) result.push_back(output);
  return result;
}

// One use as a graph: outputs, gradients, and gradients of gradients.
class Computation {
 public:
  Computation(const OpUse& use, DType dtype, int derivatives, Random& random)
      : random_(random), dtype_(dtype) {
    for (const Tensor& input : use.inputs) {
      const Tensor value = is_floating(input.dtype()) ? to(input, dtype) : input;
      given_["input" + std::to_string(xs_.size())] = value;
      xs_.push_back(placeholder(graph_, cat("x", xs_.size()), value.dtype(), value.shape()));
      feeds_.push_back({xs_.back(), value});
    }
    const Built outputs = use.build(xs_);
    add("output", outputs);
    std::vector<Output> ys = floating(outputs);
    const std::vector<Output> xs = floating(xs_);
    const char* const names[] = {"gradient", "second"};
    for (int i = 0; i < derivatives; ++i) {
      ys = gradients(
          ys, xs,
          {.initial = directions(names[i], ys), .unconnected = UnconnectedGradients::kZero});
      add(names[i], ys);
    }
  }

  const NamedTensors& given() const { return given_; }
  NamedTensors run(InterpreterOptions options) const {
    const std::vector<Tensor> values = evaluate(fetched_, feeds_, options);
    NamedTensors result;
    for (std::size_t i = 0; i < values.size(); ++i) result[names_[i]] = values[i];
    return result;
  }

 private:
  void add(const char* kind, std::span<const Output> outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      fetched_.push_back(outputs[i]);
      names_.push_back(cat(kind, i));
    }
  }
  // Random factors of the elements of ys, whose weighted sum is differentiated.
  std::vector<Output> directions(const char* kind, std::span<const Output> ys) {
    std::vector<Output> result;
    for (const Output& y : ys) {
      const Tensor direction = to(random_.values(y.shape(), -1, 1), dtype_);
      given_[cat(kind, "_direction", result.size())] = direction;
      result.push_back(constant(graph_, direction));
    }
    return result;
  }

  Random& random_;
  DType dtype_;
  Graph graph_;
  std::vector<Output> xs_, fetched_;
  std::vector<std::string> names_;
  std::vector<FeedValue> feeds_;
  NamedTensors given_;
};

using OnHost = void(KernelPlan&, bool own_kernels, int orders, KernelRun&);
OnHost* gpu_kernel_on_host = nullptr;

KernelRun take_gpu_kernel(KernelPlan& plan) {
  KernelRun run;
  gpu_kernel_on_host(plan, true, 1, run);
  return run;
}

// Whether the kernels of the GPU module can be had.
bool load_gpu_kernels() {
  if (gpus().backend() == nullptr) return false;
  void* const library = dlopen(BELFRY_BIN_DIR "/../lib/libgpu_kernel_tests.so", RTLD_NOW);
  if (library)
    gpu_kernel_on_host = reinterpret_cast<OnHost*>(dlsym(library, "belfry_gpu_kernel_on_host"));
  return gpu_kernel_on_host != nullptr;
}

void write_file(const std::string& file, const NamedTensors& tensors,
                const std::map<std::string, std::string>& options) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors)
    stored.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
  std::string text = lay_out_safetensors(stored, options);
  for (const StoredTensor& laid : stored) {
    const Tensor& tensor = tensors.at(laid.name);
    text.append(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  write_text_file(local_file_system(), file, text);
}

// The names in the file are USE/DTYPE/input0 ... and USE/DTYPE/KERNELS/output0 ...
void write_case(const OpCase& op, const std::string& folder, bool with_gpu_kernels) {
  NamedTensors tensors;
  std::map<std::string, std::string> options;
  for (int i = 0; i < kUses; ++i) {
    Random random(static_cast<std::uint64_t>(i) + 1);
    const OpUse use = op.make(random);
    options[std::to_string(i)] = use.options.str();
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const Computation computation(use, dtype, op.derivatives, random);
      const std::string prefix = cat(i, "/", name_of(dtype), "/");
      const auto add = [&](const std::string& kernels, const NamedTensors& values) {
        for (const auto& [name, tensor] : values) tensors[prefix + kernels + name] = tensor;
      };
      add("", computation.given());
      add("cpu/", computation.run({}));
      add("reference/", computation.run({.reference = true}));
      if (!with_gpu_kernels) continue;
      const CpuKernel before = set_kernel_source(take_gpu_kernel);
      add("gpu/", computation.run({}));
      set_kernel_source(before);
    }
  }
  write_file(cat(folder, "/", op.name, ".safetensors"), tensors, options);
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto cases :
       {attention_cases, indexing_cases, linear_algebra_cases, loss_cases, pointwise_cases,
        recurrent_cases, shapes_cases, standard_cases, window_cases})
    std::ranges::move(cases(), std::back_inserter(all));
  return all;
}

// Uses of an op as ONNX files, and what Belfry computes. Prints why one cannot be exported.
void write_onnx_case(const OpCase& op, const std::string& folder) {
  for (int i = 0; i < kUses; ++i) {
    Random random(static_cast<std::uint64_t>(i) + 1);
    const OpUse use = op.make(random);
    Graph graph;
    PredictingGraph predicting;
    std::vector<Output>& xs = predicting.inputs;
    std::vector<Tensor> values;
    for (const Tensor& input : use.inputs) {
      values.push_back(is_floating(input.dtype()) ? to(input, DType::kF32) : input);
      xs.push_back(placeholder(graph, cat("x", xs.size()), values.back().dtype(), input.shape()));
    }
    for (const Output& output : use.build(xs))
      predicting.outputs.emplace_back(cat("y", predicting.outputs.size()), output);
    Session session(graph);
    const std::vector<Tensor> batches[] = {values};
    try {
      write_onnx_test(cat(folder, "/", op.name, "/", i), predicting, session, batches);
    } catch (const InvalidArgument& error) {
      std::cerr << op.name << ": " << error.what() << "\n";
      return;
    }
  }
}

struct WantedValues {
  std::string folder, ops, help;
  bool onnx = false;
};

int write_values(const WantedValues& wanted) {
  const bool with_gpu_kernels = !wanted.onnx && load_gpu_kernels();
  if (!wanted.onnx && !with_gpu_kernels)
    std::cerr << "without kernels of GPUs: " << gpus().why_none() << "\n";
  local_file_system().create_directory(wanted.folder);
  const std::vector<std::string_view> names = split(wanted.ops, ',');
  for (const OpCase& op : all_cases()) {
    if (!wanted.ops.empty() && std::ranges::find(names, op.name) == names.end()) continue;
    if (wanted.onnx)
      write_onnx_case(op, wanted.folder);
    else
      write_case(op, wanted.folder, with_gpu_kernels);
  }
  return 0;
}

WantedValues parse_values(std::span<const char* const> arguments, const std::string& program) {
  WantedValues wanted;
  FlagParser parser("Writes values and gradients of random uses of each op.", program);
  parser.add_argument("FOLDER", wanted.folder, "for a safetensors file per op",
                      FlagParser::Needed::kYes);
  parser.add_argument("OPS", wanted.ops, "only these, separated by commas",
                      FlagParser::Needed::kNo);
  parser.add("--onnx", wanted.onnx,
             "write ONNX files instead, and values for scripts/check_onnx [false]");
  wanted.help = parser.parse(arguments);
  return wanted;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  using namespace belfry::bench;
  return belfry::run_program(argc, argv, parse_values, write_values);
}
