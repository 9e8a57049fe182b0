// Pads rows of 16-bit tensors on GPUs so that each begins at 16 bytes. cuBLASLt computes products
// of rows that do not, such as the logits of 50,257 classes, by far slower kernels. Only some
// kernels take padded rows, so the pass pads a tensor only if all that use it do. To all others a
// tensor is dense.
#include <variant>

#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

constexpr std::int64_t kPack = 8;  // elements of 16 bits in 16 bytes
// Shorter rows stay as they are, so that padding takes at most an eighth more memory.
constexpr std::int64_t kFewestColumns = 56;

class RowPadder {
 public:
  RowPadder(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    for (const NodeIndex n : plan_.nodes.indices())
      for (int i = 0; i < std::ssize(plan_.node(n).types); ++i) consider({n, i});
    while (!plan_.pitches.empty() && drop_some()) {
    }
  }

 private:
  // A dry run plans for the GPUs of this machine, if it has any.
  const GpuBackend* backend_of(const PlanNode& node) const {
    const Device& device = context_.device(node.device());
    return device.backend || !device.on_gpu() ? device.backend : gpus().backend();
  }

  // Whether a node takes padded rows and makes them. An alias does if its other side does.
  bool takes_pitches(const PlanNode& node) const {
    const GpuBackend* const backend = backend_of(node);
    return backend && std::holds_alternative<std::monostate>(node.role) &&
           !node.sharding.divides() && (node.op->alias || backend->takes_pitches(*node.op));
  }

  void consider(Value value) {
    const auto& [shape, dtype] = plan_.type(value);
    if (!is_half(dtype) || shape.rank() < 2 || shape.elements() == 0 ||
        shape.back() < kFewestColumns || shape.back() % kPack == 0 ||
        !takes_pitches(plan_.node(value.node)))
      return;
    plan_.pitches[value] = (shape.back() + kPack - 1) / kPack * kPack;
  }

  void drop(Value value) { dropped_ = plan_.pitches.erase(value) > 0 || dropped_; }

  // Values in the same memory have the same rows.
  void tie(Value a, Value b) {
    const std::int64_t pitch = plan_.pitch(a);
    if (pitch == plan_.pitch(b) &&
        (pitch == 0 || plan_.type(a).shape.back() == plan_.type(b).shape.back()))
      return;
    drop(a);
    drop(b);
  }

  // Returns whether a tensor turned out to stay dense.
  bool drop_some() {
    dropped_ = false;
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& node = plan_.node(n);
      const bool takes = takes_pitches(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const auto& [from, index, shard] = node.inputs[i];
        if (!takes || shard != Value::kOwn || (node.op->alias && i > 0)) drop({from, index});
      }
      if (node.op->alias || (takes && node.op->in_place == InPlace::kFirst))
        tie(node.inputs[0], {n, 0});
    }
    return dropped_;
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  bool dropped_ = false;
};

}  // namespace

void pad_rows(PlanGraph& plan, const PlanContext& context) { RowPadder(plan, context).run(); }

}  // namespace belfry
