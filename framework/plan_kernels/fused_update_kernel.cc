#include "belfry/framework/plan_kernels/fused_update_kernel.h"

#include <algorithm>
#include <array>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/plan/fused_update.h"
#include "belfry/framework/plan_kernels/host_kernel.h"

namespace belfry {
namespace {

// Bytes of a combined tensor that are computed at a time. Such a chunk stays in the L2 cache, with
// everything that it is computed from.
constexpr std::int64_t kUpdateChunk = 8 << 10;

KernelRun prepare_member(const Op& op, KernelPlan& kernel, bool reference) {
  kernel.set_op(op);
  KernelRun run = prepare_kernel(kernel, reference);
  require<InternalError>(
      kernel.workspace_bytes() == 0, kernel.node().describe(),
      ": its kernel asks for a workspace, which members of a fused update have none of");
  return run;
}

class FusedUpdateKernel {
 public:
  FusedUpdateKernel(const PlanGraph& plan, const PlanNode& node, bool reference)
      : fused_(std::get<std::shared_ptr<const FusedUpdate>>(node.role)) {
    const FusedTensors fused = tensors_of(*fused_);
    const std::vector<TensorType> inputs = plan.input_types(node);
    participants_ = fused.participants;
    shards_ = fused.shards;
    for (const FusedTensors::Tensor& tensor : fused.tensors) {
      const std::int64_t elements = tensor.type.shape.elements();
      Tensor made{.elements = elements,
                  .element_bytes = static_cast<std::int64_t>(size_of(tensor.type.dtype)),
                  .first_input = tensor.first_input};
      if (const FusedUpdate::Member* const sum = fused.collective) {
        const std::vector<TensorType> types(participants_, tensor.type);
        KernelPlan kernel(*sum->node, types, types, {0, elements});
        made.sum = prepare_member(*sum->op, kernel, reference);
      }
      if (const FusedUpdate::Member* const sum = fused.shard_sum) {
        const std::vector<TensorType> types(shards_, tensor.type);
        KernelPlan kernel(*sum->node, types, std::span(types).first(1), {0, elements});
        made.shard_sum = prepare_member(*sum->op, kernel, reference);
      }
      for (const FusedTensors::Update& update : tensor.updates) {
        const FusedUpdate::Member& member = *update.member;
        made.assigned = made.assigned && member.op == &kAssign;
        std::vector<TensorType> types;
        for (const int input : update.inputs)
          types.push_back(input == FusedTensors::kCombined ? tensor.type : inputs[at(input)]);
        KernelPlan kernel(*member.node, types, member.types, {0, elements});
        made.updates.push_back({update, prepare_member(*member.op, kernel, reference)});
      }
      elements_.append(elements);
      tensors_.push_back(std::move(made));
    }
  }

  void operator()(const KernelPointers& p) const {
    elements_.for_each({p.begin(), p.end()},
                       [&](std::size_t b, std::int64_t begin, std::int64_t end) {
                         update(p, b, {begin, end});
                       });
  }

 private:
  struct Update {
    FusedTensors::Update of;
    KernelRun run;
  };
  struct Tensor {
    std::int64_t elements, element_bytes;
    std::size_t first_input;
    KernelRun sum = {};        // empty for one participant
    KernelRun shard_sum = {};  // empty for one shard
    std::vector<Update> updates = {};
    bool assigned = true;  // all updates are assignments
  };

  void update(const KernelPointers& p, std::size_t b, WorkRange range) const {
    const Tensor& tensor = tensors_[b];
    if (tensor.updates.empty()) return;
    // Only GPUs fuse updates that follow no sum. Hosts run this in place of GPUs in tests.
    if (!tensor.sum && !tensor.shard_sum) return apply(p, tensor.updates[0], nullptr, range);
    const auto inputs = p.mutable_inputs().subspan(tensor.first_input, participants_ * shards_);
    if (tensor.assigned && tensor.sum && !tensor.shard_sum &&
        tensor.updates.size() <= participants_)
      return assign(p, tensor, inputs, range);
    alignas(64) std::byte sum[kUpdateChunk];
    const std::int64_t step = kUpdateChunk / tensor.element_bytes;
    for (std::int64_t begin = range.begin; begin < range.end; begin += step) {
      const WorkRange chunk{begin, std::min(begin + step, range.end)};
      void* const whole = from_start(sum, tensor, chunk);
      if (tensor.shard_sum)
        add_shards(p, tensor, inputs, chunk, whole);
      else
        add_participants(p, tensor, inputs, chunk, whole);
      for (const Update& update : tensor.updates) apply(p, update, whole, chunk);
    }
  }

  // All updates assign, as in allreduce_bench and in the first of several batches of a training
  // step. So the sum is written to their variables directly.
  void assign(const KernelPointers& p, const Tensor& tensor, std::span<void* const> inputs,
              WorkRange range) const {
    const auto written = [&](std::size_t u) {
      return p.mutable_inputs()[at(tensor.updates[u].of.inputs[0])];
    };
    std::array<void*, FusedTensors::kMostParticipants> results;
    std::fill_n(results.begin(), participants_, written(0));
    for (std::size_t u = 1; u < tensor.updates.size(); ++u) results[participants_ - u] = written(u);
    tensor.sum(KernelPointers(inputs, {results.data(), participants_}, nullptr, range, p.step()));
  }

  // A pointer to where element 0 of the whole tensor would be, given that `buffer` holds the chunk:
  // kernels count elements from the start of the tensor.
  static void* from_start(std::byte* buffer, const Tensor& tensor, WorkRange chunk) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(buffer) -
                                   at(chunk.begin * tensor.element_bytes));
  }

  void add_participants(const KernelPointers& p, const Tensor& tensor,
                        std::span<void* const> inputs, WorkRange chunk, void* whole) const {
    std::array<void*, FusedTensors::kMostParticipants> results;
    std::fill_n(results.begin(), participants_, whole);
    tensor.sum(KernelPointers(inputs, {results.data(), participants_}, nullptr, chunk, p.step()));
  }

  void add_shards(const KernelPointers& p, const Tensor& tensor, std::span<void* const> inputs,
                  WorkRange chunk, void* whole) const {
    const auto add = [&](std::size_t participant, void* result) {
      tensor.shard_sum(KernelPointers(inputs.subspan(participant * shards_, shards_), {&result, 1},
                                      nullptr, chunk, p.step()));
    };
    if (!tensor.sum) return add(0, whole);
    alignas(64) std::byte buffers[FusedTensors::kMostSharded][kUpdateChunk];
    std::array<void*, FusedTensors::kMostSharded> sums;
    for (std::size_t k = 0; k < participants_; ++k)
      add(k, sums[k] = from_start(buffers[k], tensor, chunk));
    add_participants(p, tensor, {sums.data(), participants_}, chunk, whole);
  }

  static void apply(const KernelPointers& p, const Update& update, void* sum, WorkRange range) {
    std::array<void*, FusedTensors::kMostInputs> inputs;
    const auto all = p.mutable_inputs();
    std::size_t count = 0;
    for (const int input : update.of.inputs)
      inputs[count++] = input == FusedTensors::kCombined ? sum : all[at(input)];
    update.run(KernelPointers(
        {inputs.data(), count},
        p.all_outputs().subspan(update.of.first_output, update.of.member->types.size()), nullptr,
        range, p.step()));
  }

  std::shared_ptr<const FusedUpdate> fused_;  // owns the members
  std::size_t participants_ = 1, shards_ = 1;
  EndToEnd elements_;  // elements of tensors_
  std::vector<Tensor> tensors_;
};

}  // namespace

KernelRun prepare_fused_update(const PlanGraph& plan, const PlanNode& node, bool reference) {
  return FusedUpdateKernel(plan, node, reference);
}

}  // namespace belfry
