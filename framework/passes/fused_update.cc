#include <algorithm>
#include <array>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Of each combined tensor at a time: with all that it is made of, it stays in the second cache.
constexpr std::int64_t kUpdateChunk = 8 << 10;

KernelRun prepare_part(const Op& op, KernelPlan& kernel, bool reference) {
  KernelRun run = prepare_kernel(op, kernel, reference);
  require<Internal>(
      kernel.workspace_bytes() == 0, kernel.node().describe(),
      ": its kernel asks for a workspace, which parts of a fused update have none of");
  return run;
}

class FusedUpdate {
 public:
  FusedUpdate(const PlanGraph& plan, const PlanNode& node, bool reference)
      : fusion_(std::get<std::shared_ptr<const Fusion>>(node.role)) {
    const std::vector<TensorType> inputs = plan.input_types(node);
    const auto count = at(fusion_->participants);
    for (std::size_t first = 0; first < fusion_->types.size(); first += count) {
      const std::span types(fusion_->types.begin() + static_cast<std::ptrdiff_t>(first), count);
      KernelPlan sum(*node.node, types, types, {0, types[0].shape.elements()});
      elements_.append(types[0].shape.elements());
      tensors_.push_back({types[0].shape.elements(),
                          static_cast<std::int64_t>(size_of(types[0].dtype)),
                          fusion_->op ? prepare_part(*fusion_->op, sum, reference) : KernelRun(),
                          {}});
    }
    for (const Fusion::Update& update : fusion_->updates) {
      Tensor& tensor = tensors_[at(update.result) / count];
      tensor.assigned = tensor.assigned && update.op == &kAssign;
      std::vector<TensorType> types;
      for (const int input : update.inputs)
        types.push_back(input < 0 ? fusion_->types[at(update.result)] : inputs[at(input)]);
      KernelPlan kernel(*update.node, types, update.types, {0, tensor.elements});
      tensor.updates.push_back({&update, prepare_part(*update.op, kernel, reference)});
    }
  }

  void operator()(const Pointers& p) const {
    elements_.for_each({p.begin(), p.end()},
                       [&](std::size_t b, std::int64_t begin, std::int64_t end) {
                         update(p, b, {begin, end});
                       });
  }

 private:
  struct Update {
    const Fusion::Update* of;
    KernelRun run;
  };
  struct Tensor {
    std::int64_t elements, element_bytes;
    KernelRun sum;  // empty: of one gradient
    std::vector<Update> updates;
    bool assigned = true;  // all updates are assignments
  };

  void update(const Pointers& p, std::size_t b, Range range) const {
    alignas(64) std::byte sum[kUpdateChunk];
    const Tensor& tensor = tensors_[b];
    if (tensor.updates.empty()) return;
    const auto participants = at(fusion_->participants);
    const std::int64_t step = kUpdateChunk / tensor.element_bytes;
    const auto inputs =
        p.given_inputs().subspan(at(fusion_->first_input) + b * participants, participants);
    if (!tensor.sum) return apply(p, tensor.updates[0], inputs[0], range);
    std::array<void*, Fusion::kMostParticipants> results;
    const std::span<void* const> outputs(results.data(), participants);
    // Nothing is done to the results: they go where they belong.
    if (tensor.assigned && tensor.updates.size() <= participants) {
      const auto written = [&](std::size_t u) {
        return p.given_inputs()[at(tensor.updates[u].of->inputs[0])];
      };
      std::fill_n(results.begin(), participants, written(0));
      for (std::size_t u = 1; u < tensor.updates.size(); ++u)
        results[participants - u] = written(u);
      return tensor.sum(Pointers(inputs, outputs, nullptr, range, p.step()));
    }
    for (std::int64_t begin = range.begin; begin < range.end; begin += step) {
      const Range part{begin, std::min(begin + step, range.end)};
      // Kernels count elements from the start of the whole tensor.
      void* const whole = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(sum) -
                                                  at(begin * tensor.element_bytes));
      std::fill_n(results.begin(), participants, whole);
      tensor.sum(Pointers(inputs, outputs, nullptr, part, p.step()));
      for (const Update& update : tensor.updates) apply(p, update, whole, part);
    }
  }

  static void apply(const Pointers& p, const Update& update, void* sum, Range part) {
    std::array<void*, Fusion::kMostInputs> inputs;
    const auto all = p.given_inputs();
    std::size_t count = 0;
    for (const int input : update.of->inputs) inputs[count++] = input < 0 ? sum : all[at(input)];
    update.run(
        Pointers({inputs.data(), count},
                 p.all_outputs().subspan(at(update.of->first_output), update.of->types.size()),
                 nullptr, part, p.step()));
  }

  std::shared_ptr<const Fusion> fusion_;
  EndToEnd elements_;  // of tensors_
  std::vector<Tensor> tensors_;
};

}  // namespace

KernelRun prepare_fused_update(const PlanGraph& plan, const PlanNode& node, bool reference) {
  return FusedUpdate(plan, node, reference);
}

}  // namespace belfry
