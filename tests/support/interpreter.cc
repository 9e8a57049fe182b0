#include "belfry/tests/support/interpreter.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan_kernels/host_kernel.h"
#include "belfry/tests/support/parts.h"

namespace belfry {
namespace {

CpuKernel kernel_source = nullptr;

Tensor poisoned(const TensorType& type) {
  Tensor tensor(type.shape, type.dtype);
  std::memset(tensor.mutable_raw(), 0xff, tensor.bytes());
  return tensor;
}

TensorType type_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype()}; }

// One run: the values of all needed outputs, and of all versions of a variable.
class Evaluation {
 public:
  using Stored = std::function<const Tensor&(const Node&)>;

  Evaluation(const InterpreterOptions& options, std::uint64_t step, Stored stored)
      : options_(options), step_(step), stored_(std::move(stored)) {}

  void feed(const FeedValue& feed) {
    require(
        feed.where.shape().compatible(feed.what.shape()) && feed.where.dtype() == feed.what.dtype(),
        feed.where.node().describe(), ": cannot be fed with ", type_of(feed.what));
    fed_[{&feed.where.node(), feed.where.index()}] = feed.what;
  }

  void run(std::span<const Fetch> fetches) {
    std::set<int> needed;
    std::vector<Node*> open;
    const auto need = [&](Node& node) {
      if (needed.insert(node.id()).second) open.push_back(&node);
    };
    Graph* graph = nullptr;
    for (const Fetch& fetch : fetches) {
      graph = &fetch.node->graph();
      if (!fetch.output || !is_fed(fetch.output)) need(*fetch.node);
    }
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Output& input : node.inputs())
        if (!is_fed(input)) need(input.node());
      for (Node* before : node.control_inputs()) need(*before);
    }
    for (const int id : needed) run_node(graph->node(static_cast<std::size_t>(id)));
  }

  const Tensor& value(const Output& output) const {
    const auto fed = fed_.find({&output.node(), output.index()});
    return fed != fed_.end() ? fed->second
                             : values_.at(&output.node())[static_cast<std::size_t>(output.index())];
  }

  // The last versions of variables that were written.
  std::map<const Node*, Tensor> written() const {
    std::map<const Node*, Tensor> result;
    for (const Write& write : writes_) result[write.variable] = write.value;
    return result;
  }

 private:
  struct Write {
    const Node* variable;
    const Node* writer;
    Tensor value;
  };

  bool is_fed(const Output& output) const {
    return fed_.contains({&output.node(), output.index()});
  }

  // The version of a variable that `consumer` sees: the last write with a path to it, else the
  // value from before the run.
  const Tensor& version(const Node& variable, const Node& consumer) {
    std::set<const Node*> before;
    std::vector<const Node*> open{&consumer};
    const auto reach = [&](const Node& node) {
      if (before.insert(&node).second) open.push_back(&node);
    };
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Output& input : node.inputs()) reach(input.node());
      for (Node* control : node.control_inputs()) reach(*control);
    }
    const auto last = std::ranges::find_if(writes_.rbegin(), writes_.rend(), [&](const Write& w) {
      return w.variable == &variable && before.contains(w.writer);
    });
    return last == writes_.rend() ? stored_(variable) : last->value;
  }

  void run_node(const Node& node) {
    if (node.is_variable()) {
      values_[&node] = {stored_(node)};
      return;
    }
    if (&node.op() == &kConst) {
      values_[&node] = {node.options<ConstantOptions>().value};
      return;
    }
    require(!node.op().storage, node.describe(), ": must be fed");
    std::vector<Tensor> inputs;
    std::vector<TensorType> input_types, output_types;
    for (const Output& input : node.inputs()) {
      inputs.push_back(input.node().is_variable() ? version(input.node(), node) : value(input));
      input_types.push_back(type_of(inputs.back()));
    }
    const ShapeContext context(node.op(), node.name(), node.origin().site, input_types,
                               node.raw_options());
    for (const OutputType& type : node.op().shape(context))
      output_types.push_back({type.shape, type.dtype ? *type.dtype : input_types[0].dtype});
    for (const TensorType& type : output_types)
      require(type.shape.is_fully_known(), node.describe(), ": shape ", type.shape,
              " is not known; feed it");
    values_[&node] = launch(node, inputs, input_types, output_types);
  }

  std::vector<Tensor> launch(const Node& node, std::vector<Tensor>& inputs,
                             std::span<const TensorType> input_types,
                             std::span<const TensorType> output_types) {
    const Op& op = node.op();
    std::vector<Tensor> outputs;
    if (op.alias) {
      Tensor same(output_types[0].shape, output_types[0].dtype);
      std::memcpy(same.mutable_raw(), inputs[0].raw(), same.bytes());
      return {same};
    }
    for (const TensorType& type : output_types) outputs.push_back(poisoned(type));
    // Products are cut only after many rows (rows_of_product_part).
    const bool whole_only =
        op.work || (kernel_source && !options_.reference && op.split != WorkSplit::kElements);
    const std::vector<WorkRange> ranges =
        divide(extent(node, input_types, output_types), whole_only ? 0 : options_.shift,
               op.split == WorkSplit::kSerial || whole_only ? 1 : options_.parts);
    const WorkRange whole{0, ranges.back().end};
    const auto [kernel, workspace] = prepare(node, input_types, output_types, whole);
    const std::vector<int> over = overwritten(op, inputs, outputs);
    for (const WorkRange& range : ranges)
      call(node, kernel, workspace, range, inputs, outputs, over);
    for (std::size_t i = 0; i < over.size(); ++i)
      if (over[i] >= 0)
        std::memcpy(outputs[i].mutable_raw(), inputs[static_cast<std::size_t>(over[i])].raw(),
                    outputs[i].bytes());
    for (std::size_t i = 0; i < static_cast<std::size_t>(op.writes); ++i) {
      if (i < outputs.size()) outputs[i] = inputs[i];
      writes_.push_back({&node.input(i).node(), &node, inputs[i]});
    }
    return outputs;
  }

  struct Prepared {
    KernelRun kernel;
    std::int64_t workspace;
  };

  Prepared prepare(const Node& node, std::span<const TensorType> inputs,
                   std::span<const TensorType> outputs, WorkRange range) const {
    KernelPlan plan(node, inputs, outputs, range);
    KernelRun kernel;
    if (kernel_source && !options_.reference) kernel = kernel_source(plan);
    if (!kernel) kernel = prepare_kernel(plan, options_.reference);
    return {std::move(kernel), plan.workspace_bytes()};
  }

  // The input whose memory each output takes, -1 for none.
  std::vector<int> overwritten(const Op& op, const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& outputs) const {
    std::vector<int> over(outputs.size(), -1);
    if (options_.in_place < 0 || op.in_place == InPlace::kNo || op.writes > 0) return over;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (i > 0 && op.in_place != InPlace::kPairwise) continue;
      const auto from =
          op.in_place == InPlace::kAny ? static_cast<std::size_t>(options_.in_place) : i;
      if (from < inputs.size() && inputs[from].bytes() == outputs[i].bytes())
        over[i] = static_cast<int>(from);
    }
    return over;
  }

  void call(const Node& node, const KernelRun& kernel, std::int64_t workspace_bytes,
            WorkRange range, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
            const std::vector<int>& over) const {
    Tensor workspace = poisoned({Shape{workspace_bytes}, DType::kU8});
    std::vector<void*> in, out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool written = i < static_cast<std::size_t>(node.op().writes);
      in.push_back(written ? inputs[i].mutable_raw() : const_cast<std::byte*>(inputs[i].raw()));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (i < over.size() && over[i] >= 0) {
        const auto from = static_cast<std::size_t>(over[i]);
        void* const before = in[from];
        out.push_back(inputs[from].mutable_raw());
        // An input given twice is one memory.
        for (std::size_t j = 0; j < in.size(); ++j)
          if (in[j] == before && node.input(j) == node.input(from)) in[j] = out[i];
      } else {
        const bool written = i < static_cast<std::size_t>(node.op().writes);
        out.push_back(written ? in[i] : outputs[i].mutable_raw());
      }
    }
    kernel(KernelPointers(in, out, workspace.mutable_raw(), range, step_));
  }

  const InterpreterOptions& options_;
  std::uint64_t step_;
  Stored stored_;
  std::map<std::pair<const Node*, int>, Tensor> fed_;
  std::map<const Node*, std::vector<Tensor>> values_;
  std::vector<Write> writes_;
};

}  // namespace

void Interpreter::write(Variable variable, Tensor value) {
  require(value.shape() == variable.shape() && value.dtype() == variable.dtype(),
          variable.node().describe(), ": cannot hold ", type_of(value));
  variables_[&variable.node()] = std::move(value);
}

Tensor Interpreter::read(Variable variable) { return stored(variable.node()); }

const Tensor& Interpreter::stored(const Node& variable) {
  const auto found = variables_.find(&variable);
  if (found != variables_.end()) return found->second;
  const VariableInfo& info = variable.variable();
  InterpreterOptions start = options_;
  start.step = 0;
  return variables_[&variable] =
             info.copy_of ? stored(*info.copy_of) : evaluate(info.initial, {}, start);
}

std::vector<Tensor> Interpreter::run(std::span<const Fetch> fetches,
                                     std::span<const FeedValue> feeds) {
  Evaluation evaluation(options_, step_,
                        [this](const Node& node) -> const Tensor& { return stored(node); });
  for (const FeedValue& feed : feeds) evaluation.feed(feed);
  evaluation.run(fetches);
  std::vector<Tensor> results;
  for (const Fetch& fetch : fetches)
    results.push_back(fetch.output ? evaluation.value(fetch.output) : Tensor());
  const auto written = evaluation.written();
  for (const auto& [node, value] : written) variables_[node] = value;
  if (!written.empty()) ++step_;
  return results;
}

Tensor Interpreter::run(Output fetch, std::span<const FeedValue> feeds) {
  const Fetch fetches[] = {fetch};
  return run(fetches, feeds).front();
}

CpuKernel set_kernel_source(CpuKernel source) { return std::exchange(kernel_source, source); }

std::vector<Tensor> evaluate(std::span<const Output> outputs, std::span<const FeedValue> feeds,
                             InterpreterOptions options) {
  const std::vector<Fetch> fetches(outputs.begin(), outputs.end());
  return Interpreter(options).run(fetches, feeds);
}

Tensor evaluate(Output output, std::span<const FeedValue> feeds, InterpreterOptions options) {
  return Interpreter(options).run(output, feeds);
}

}  // namespace belfry
