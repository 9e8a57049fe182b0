#include <algorithm>
#include <array>
#include <numeric>

#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fusion.h"

namespace belfry {
namespace {

// Of each tensor at a time: what members hand on stays in the first or second cache.
constexpr std::int64_t kFusedBytes = 8 << 10;
// Kernels work out what vectors have in common anew for each part, so parts have some vectors.
constexpr std::int64_t kFewestVectors = 8;
constexpr std::size_t kMostOperands = 24;
constexpr std::int64_t kChunkAlignment = 64;

std::int64_t in_lines(std::int64_t bytes) {
  return (bytes + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
}

class FusedKernel {
 public:
  FusedKernel(const PlanGraph& plan, const PlanNode& node, std::int64_t samples, KernelPlan& kernel)
      : fusion_(std::get<std::shared_ptr<const Fusion>>(node.role)), rows_(node.rows) {
    std::int64_t step = 1, vectors = 0;
    for (const Fusion::Member& member : fusion_->body) {
      const std::int64_t unit = add_member(plan, node, member, samples, kernel);
      step = std::lcm(step, unit);
      vectors = std::max(vectors, members_.back().columns);
    }
    std::int64_t element = 1;
    for (const Fusion::Member& member : fusion_->body)
      for (const TensorType& type : member.types)
        element = std::max(element, static_cast<std::int64_t>(size_of(type.dtype)));
    const std::int64_t wanted = std::max(kFusedBytes / element, kFewestVectors * vectors);
    block_ = std::min(std::max<std::int64_t>(1, wanted / step) * step,
                      (elements_ + step - 1) / step * step);
    find_outputs();
    place_chunks(in_lines(block_ * element));
    kernel.workspace(workspace_);
  }

  void operator()(const Pointers& p) const {
    for (std::int64_t begin = 0; begin < elements_; begin += block_)
      for (const Member& member : members_)
        call(p, member, begin, std::min(begin + block_, elements_));
  }

 private:
  // Where a member finds an input, or puts an output.
  struct Operand {
    enum class Kind : std::uint8_t { kInput, kOutput, kChunk };
    Kind kind = Kind::kInput;
    std::size_t index = 0;    // of the fused node's input or output
    std::int64_t offset = 0;  // of a chunk, in the workspace
    std::int64_t element_bytes = 0;
  };
  struct Member {
    KernelRun run;
    std::vector<Operand> inputs = {}, outputs = {};
    std::int64_t columns = 0;    // of vectors; 0: it works element by element
    std::int64_t workspace = 0;  // where its own begins
    std::int64_t rows = 0;       // as in PlanNode
  };

  static bool is_cut(const PlanGraph& plan, const PlanNode& node, const Fusion::Member& member,
                     std::size_t input) {
    if (!member.sharding.divides() || !member.sharding.own[input]) return false;
    const Fusion::Source source = member.inputs[input];
    const Division division = source.member == Fusion::Source::kInput
                                  ? plan.division(node.inputs[at(source.index)])
                                  : std::get<std::shared_ptr<const Fusion>>(node.role)
                                        ->body[at(source.member)]
                                        .sharding.outputs[at(source.index)];
    return division != Division::partial();
  }

  // Returns of how many elements its parts are multiples.
  std::int64_t add_member(const PlanGraph& plan, const PlanNode& node, const Fusion::Member& member,
                          std::int64_t samples, KernelPlan& kernel) {
    std::vector<TensorType> inputs = member.taken, outputs = member.types;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (is_cut(plan, node, member, i))
        inputs[i] = plan.rows_of(inputs[i], node.device(), samples);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (member.sharding.divides() && member.sharding.outputs[i].kind == Division::Kind::kRows)
        outputs[i] = plan.rows_of(outputs[i], node.device(), samples);
    KernelPlan own(*member.node, inputs, outputs, whole_range(*member.op, 0, inputs, outputs));
    KernelPlan::Batch batch = kernel.batch();
    batch.numbered = member.rows > 0;
    own.set_batch(batch);
    Member made{prepare_kernel(*member.op, own, false)};
    const bool sums = member.op->split == WorkSplit::kRunningSums;
    const Shape& worked = sums ? inputs[0].shape : outputs[0].shape;
    elements_ = worked.elements();
    if (sums || member.op->split == WorkSplit::kVectors) made.columns = worked.back();
    made.rows = member.rows;
    made.workspace = workspace_;
    workspace_ += in_lines(own.workspace_bytes());
    members_.push_back(std::move(made));
    return std::max<std::int64_t>(1, members_.back().columns) * own.step();
  }

  void find_outputs() {
    const std::vector<std::vector<int>> places = places_in(*fusion_);
    for (std::size_t m = 0; m < members_.size(); ++m)
      for (std::size_t i = 0; i < places[m].size(); ++i)
        members_[m].outputs.push_back(
            {places[m][i] >= 0 ? Operand::Kind::kOutput : Operand::Kind::kChunk,
             at(std::max(0, places[m][i])), 0,
             static_cast<std::int64_t>(size_of(fusion_->body[m].types[i].dtype))});
  }

  // What members alone read gets a place in the workspace, until the last one has read it.
  void place_chunks(std::int64_t bytes) {
    std::vector<std::int64_t> free;  // offsets
    for (std::size_t m = 0; m < members_.size(); ++m) {
      for (Operand& output : members_[m].outputs) {
        if (output.kind != Operand::Kind::kChunk) continue;
        if (free.empty()) free.push_back(std::exchange(workspace_, workspace_ + bytes));
        output.offset = free.back();
        free.pop_back();
      }
      for (const Fusion::Source source : fusion_->body[m].inputs)
        members_[m].inputs.push_back(source.member == Fusion::Source::kInput
                                         ? Operand{Operand::Kind::kInput, at(source.index)}
                                         : members_[at(source.member)].outputs[at(source.index)]);
      free_read(m, free);
    }
  }

  // Chunks whose last reader is member m, or that nobody reads.
  void free_read(std::size_t m, std::vector<std::int64_t>& free) const {
    for (std::size_t giver = 0; giver <= m; ++giver)
      for (std::size_t i = 0; i < members_[giver].outputs.size(); ++i) {
        const Operand& output = members_[giver].outputs[i];
        const Fusion::Source source{static_cast<int>(giver), static_cast<int>(i)};
        if (output.kind == Operand::Kind::kChunk && last_reader(source) == m)
          free.push_back(output.offset);
      }
  }

  std::size_t last_reader(Fusion::Source source) const {
    std::size_t last = at(source.member);
    for (std::size_t m = last; m < fusion_->body.size(); ++m)
      if (std::ranges::find(fusion_->body[m].inputs, source) != fusion_->body[m].inputs.end())
        last = m;
    return last;
  }

  // Kernels count elements from the start of the whole tensor.
  static void* find(const Pointers& p, const Operand& operand, std::int64_t begin) {
    switch (operand.kind) {
      case Operand::Kind::kInput: return p.given_inputs()[operand.index];
      case Operand::Kind::kOutput: return p.all_outputs()[operand.index];
      case Operand::Kind::kChunk: break;
    }
    return reinterpret_cast<void*>(
        reinterpret_cast<std::uintptr_t>(p.workspace() + operand.offset) -
        at(begin * operand.element_bytes));
  }

  void call(const Pointers& p, const Member& member, std::int64_t begin, std::int64_t end) const {
    std::array<void*, kMostOperands> found;
    std::size_t count = 0;
    for (const Operand& input : member.inputs) found[count++] = find(p, input, begin);
    for (const Operand& output : member.outputs) found[count++] = find(p, output, begin);
    const std::size_t inputs = member.inputs.size();
    const std::int64_t unit = std::max<std::int64_t>(1, member.columns);
    const std::int64_t first_row = rows_ > 0 ? p.first_row() / rows_ * member.rows : 0;
    member.run(Pointers({found.data(), inputs}, {found.data() + inputs, count - inputs},
                        p.workspace() + member.workspace, {begin / unit, end / unit}, p.step(),
                        first_row));
  }

  std::shared_ptr<const Fusion> fusion_;  // has the members
  std::int64_t rows_;                     // as in PlanNode
  std::vector<Member> members_;
  std::int64_t elements_ = 0, block_ = 1;  // of the tensors; of a part of them
  std::int64_t workspace_ = 0;
};

}  // namespace

KernelRun prepare_fused(const PlanGraph& plan, const PlanNode& node, std::int64_t samples,
                        KernelPlan& kernel) {
  return FusedKernel(plan, node, samples, kernel);
}

}  // namespace belfry
