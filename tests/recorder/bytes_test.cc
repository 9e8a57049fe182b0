// What the kernels of a training step move through the memory of a GPU. Prints the tables that
// docs/performance.md sums up.
#include <cstdio>
#include <map>
#include <optional>

#include "belfry/framework/base/json.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/cuda/runtime/cuda_stream.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/launch_work.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/recorder/counting_queue.h"
#include "belfry/tests/recorder/recorder_support.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"

namespace belfry::recorder {
namespace bytes_test {

using RecorderBytes = RecorderTest;

struct Sum {
  int launches = 0;
  Touched moved;
  std::int64_t floor = 0;

  std::int64_t bytes() const { return moved.read + moved.written; }
  void operator+=(const Sum& more) {
    launches += more.launches;
    moved.read += more.moved.read;
    moved.written += more.moved.written;
    floor += more.floor;
  }
};

// By op and kernel. The floor is under the op alone.
using Step = std::map<std::string, std::map<std::string, Sum>>;

// Each tensor goes through memory once. Casts, sums of gradients and copies need none: kernels
// before or after them could do that work.
std::int64_t floor_of(const Plan& plan, NodeIndex n) {
  for (const Op* none : {&kCast, &kAddN, &kCopy, &kTransfer})
    if (plan.node(n).op == none) return 0;
  return work_of(plan, n, 0).bytes;
}

// Counts what the launches of a planned GPU move.
class Counter {
 public:
  explicit Counter(const Plan& plan) : plan_(plan) {
    for (const Launch& launch : plan_.launches)
      if (plan_.strands[launch.strand].device == kGpu) count(launch);
  }

  const Step& step() const { return step_; }
  const std::vector<cuda::MatMul>& products() const { return queue_.products(); }

 private:
  static constexpr int kGpu = 1;  // device 0 is the host

  void count(const Launch& launch) {
    const PlanNode& node = plan_.node(launch.node);
    if (node.inputs.empty() && node.types.empty()) return;
    auto& of_op = step_[node.op->name];
    of_op[""].floor += floor_of(plan_, launch.node);
    const std::vector<TensorType> inputs = plan_.input_types(node);
    Touched once;  // of all tensors
    for (const TensorType& type : inputs) once.read += type.bytes();
    for (const TensorType& type : node.types) once.written += type.bytes();
    if (node.op == &kCopy) {
      of_op["copy"] += {.launches = 1, .moved = once};
      return;
    }
    KernelPlan kernel(*node.node, inputs, node.types, launch.range);
    kernel.set_op(*node.op);
    kernel.set_batch({.numbered = node.rows > 0});
    const GpuBackend& backend = *gpus().backend();
    const GpuRun run = node.fused_update()
                           ? backend.prepare_fused(0, plan_, node)
                           : backend.prepare(0, kernel, false, plan_.pitches_of(launch.node));
    run.target<cuda::StreamRun>()->run(place(launch, kernel.workspace_bytes()), queue_);
    for (CountedLaunch& counted : queue_.take()) {
      // A launch takes too many tensors to find all of them, each element once.
      if (node.fused_update() || node.op == &kAllFinite) counted.moved = std::exchange(once, {});
      of_op[counted.kernel] += {.launches = 1, .moved = counted.moved};
    }
    queue_.memory().clear();
  }

  // Gives all tensors of a launch memory.
  KernelPointers place(const Launch& launch, std::int64_t workspace) {
    const PlanNode& node = plan_.node(launch.node);
    std::map<Value, void*> placed;
    inputs_.clear();
    outputs_.clear();
    for (const Value& input : node.inputs) {
      void*& at = placed[input];
      if (!at) at = queue_.memory().tensor(plan_.bytes(input));
      inputs_.push_back(at);
    }
    const auto writes = static_cast<std::size_t>(node.writes());
    for (std::size_t i = 0; i < node.types.size(); ++i)
      outputs_.push_back(
          i < writes ? inputs_[i]
                     : queue_.memory().tensor(plan_.bytes({launch.node, static_cast<int>(i)})));
    return KernelPointers(inputs_, outputs_, queue_.memory().workspace(workspace), launch.range, 0);
  }

  const Plan& plan_;
  CountingQueue queue_;
  Step step_;
  std::vector<void*> inputs_, outputs_;
};

// Attention by cuDNN, as on a GPU, without the memory that measuring it would take.
void choose_attention(std::int64_t batch, const models::GptSize& size, bool pads) {
  const std::string types = cat(" bf16 [", batch, ",", size.sequence_length, ",", size.heads, ",",
                                size.width / size.heads, "] joined on Recorder, cuDNN ",
                                gpus().backend()->versions().cudnn);
  JsonValue choices = JsonValue::object();
  for (const char* pass : {"CausalAttention", "CausalAttentionGrad"})
    choices.set(cat(pass, types), JsonValue::object()
                                      .set("algorithm", 0)
                                      .set("workspace_bytes", 0)
                                      .set("deterministic", false));
  JsonValue file = JsonValue::object();
  file.set("belfry_algorithms", 1).set("choices", std::move(choices));
  file.set("variants", JsonValue::object().set("matmul.padded_rows", pads));
  gpus().backend()->give_algorithms(false, file.str(), "choices");
}

struct Case {
  const char* title;
  std::string model;
  std::optional<models::GptSize> gpt;
  int batch;
  int launches;
  std::int64_t bytes;
};

// A step in bf16 on one GPU.
struct Counted {
  Step step;
  std::vector<cuda::MatMul> products;
};
Counted step_of(const Case& of, bool pads = true) {
  if (of.gpt) choose_attention(of.batch, *of.gpt, pads);
  const ModelSpec spec = find_model(of.model, 0, {.gpt = of.gpt});
  const auto data = synthetic_data(spec.fields, spec.classes, of.batch, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .batch_size = of.batch,
                         .precision = Precision::kBf16,
                         .session = {.dry_run = true, .threads = 2}};
  options.devices = {DeviceSpec::local("GPU", 0)};
  const BuiltTraining built(find_trainer("replicated"), std::move(options), *data, nullptr);
  const std::vector<PlanOfStep> plans = built.plans_of_step();
  EXPECT_EQ(plans.size(), 1u);
  const Counter counter(*plans.at(0).plan);
  return {counter.step(), counter.products()};
}

double gb(std::int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

Sum sum_of(const std::map<std::string, Sum>& of_op) {
  Sum sum;
  for (const auto& [kernel, part] : of_op) sum += part;
  return sum;
}

void print(const char* title, const Sum& all, const Step& step) {
  std::printf("%s: %d launches, %.2f GB, floor %.2f GB\n", title, all.launches, gb(all.bytes()),
              gb(all.floor));
  std::multimap<std::int64_t, std::string, std::greater<>> order;
  for (const auto& [op, kernels] : step) order.emplace(sum_of(kernels).bytes(), op);
  for (const auto& [bytes, op] : order) {
    const Sum sum = sum_of(step.at(op));
    std::printf("| `%s` | %d | %.2f | %.2f |\n", op.c_str(), sum.launches, gb(bytes),
                gb(sum.floor));
    for (const auto& [kernel, part] : step.at(op))
      if (part.launches > 0)
        std::printf("    %s %d: %.3f read, %.3f written\n", kernel.c_str(), part.launches,
                    gb(part.moved.read), gb(part.moved.written));
  }
}

const Case kGpt2{"GPT-2 124M, batch 64",
                 "gpt",
                 models::GptSize{.layers = 12,
                                 .heads = 12,
                                 .width = 768,
                                 .sequence_length = 1024,
                                 .vocabulary = 50257,
                                 .tie_embeddings = true},
                 64,
                 629,
                 198482924475};

// Whoever makes a step move less lowers these figures, and those of docs/performance.md.
TEST_F(RecorderBytes, OfStepsDoNotGrow) {
  const Case cases[] = {
      {"ResNet-20, batch 256", "resnet20", {}, 256, 254, 1697387699},
      {"ResNet-50, batch 256", "resnet50", {}, 256, 640, 95696219027},
      {"GPT, batch 64", "gpt", models::GptSize{}, 64, 329, 10605163051},
      kGpt2,
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.title);
    const Step step = step_of(each).step;
    Sum all;
    for (const auto& [op, kernels] : step) all += sum_of(kernels);
    print(each.title, all, step);
    EXPECT_EQ(all.launches, each.launches);
    EXPECT_EQ(all.bytes(), each.bytes);
  }
}

// The leading dimensions of matrices in which cuBLASLt sees so many rows: our columns.
std::vector<std::int64_t> leading(const Counted& counted, std::int64_t rows) {
  std::vector<std::int64_t> all;
  for (const cuda::MatMul& product : counted.products)
    for (const cuda::ColumnMajor& matrix : {product.a, product.b, product.c})
      if (matrix.rows == rows) all.push_back(matrix.leading);
  return all;
}

// The head's product and both of its gradients. Kernels of the loss touch the last of 65,536 rows,
// beyond 2^31 elements.
TEST_F(RecorderBytes, LogitsOfGpt2BeginAt16Bytes) {
  for (const bool pads : {false, true})
    EXPECT_EQ(leading(step_of(kGpt2, pads), 50257),
              std::vector<std::int64_t>(3, pads ? 50264 : 50257));
}

// Here the head has weights of its own, [width, vocabulary], which two products read and one makes
// the gradient of.
TEST_F(RecorderBytes, RowsOfTheHeadsWeightsBeginAt16Bytes) {
  const Case small{"GPT", "gpt", models::GptSize{.vocabulary = 1001}, 4, 0, 0};
  for (const bool pads : {false, true})
    EXPECT_EQ(leading(step_of(small, pads), 1001),
              std::vector<std::int64_t>(6, pads ? 1008 : 1001));
}

}  // namespace bytes_test
}  // namespace belfry::recorder
