// An operation: what every node of its kind shares. An op is an object, not a string; its name is
// written once, and error prefixes, labels and registry keys derive from it.
//
//   // relu.cc
//   const Op kRelu{.name = "Relu", .inputs = 1, .shape = floating_pointwise,
//                  .gradient = relu_gradient, .split = WorkSplit::kElements,
//                  .shards = pointwise_shards, .in_place = InPlace::kFirst,
//                  .cpu = unary<functors::Relu>, .reference = plain_unary<PlainRelu>};
//   Output relu(Output x, At at) { return x.graph().add(kRelu, {x}, at).output(); }
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/base/cat.h"
#include "belfry/framework/base/dtype.h"
#include "belfry/framework/base/shape.h"
#include "belfry/framework/base/source_line.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/node_options.h"

namespace belfry {

class Node;
class Output;
struct Exchange;
struct Op;
struct OpWork;
class Expansion;
class Surroundings;
struct PackedForm;
struct ShardContext;
struct Sharding;
struct WorkContext;

// Type of one output: a shape, and a dtype that defaults to that of input 0.
struct OutputType {
  OutputType(Shape s) : shape(std::move(s)) {}  // NOLINT
  OutputType(Shape s, DType d) : shape(std::move(s)), dtype(d) {}
  OutputType(const TensorType& type) : shape(type.shape), dtype(type.dtype) {}  // NOLINT

  Shape shape;
  std::optional<DType> dtype;
};

// What a shape function sees. It runs when a node is built (dimensions may be kUnknownSize), and
// again when a plan is compiled for real shapes.
class ShapeContext {
 public:
  ShapeContext(const Op& op, std::string_view node_name, SourceLine site,
               std::span<const TensorType> inputs, const NodeOptions& options)
      : op_(op), node_name_(node_name), site_(site), inputs_(inputs), options_(options) {}

  std::size_t inputs() const { return inputs_.size(); }
  const Shape& input(std::size_t i) const { return inputs_[i].shape; }
  DType dtype(std::size_t i = 0) const { return inputs_[i].dtype; }
  const TensorType& type(std::size_t i) const { return inputs_[i]; }
  template <class T>
  const T& options() const {
    return options_.as<T>();
  }

  // Throws InvalidArgument "MatMul 'tower1/fc1' (built at model.cc:41): <parts>" unless condition.
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      fail(detail::cat(parts...));
  }
  void require_rank(std::size_t i, std::size_t rank) const;
  // All inputs must have one dtype; suggests `cast`.
  void require_same_dtype() const;
  void require_floating(std::size_t i) const;

 private:
  [[noreturn]] void fail(const std::string& why) const;

  const Op& op_;
  std::string_view node_name_;
  SourceLine site_;
  std::span<const TensorType> inputs_;
  const NodeOptions& options_;
};

using OutputTypes = std::vector<OutputType>;
using ShapeFunction = OutputTypes (*)(const ShapeContext&);

// The number of participants of a collective.
using ParticipantsFunction = int (*)(const Node& node);
// The divisor of the sums of a collective: 1, or the number of participants.
using DivisorFunction = int (*)(const Node& node);

// Gradients with respect to each input of `node`, from the gradients of its outputs, of which at
// least one is not empty. An output without a gradient counts as zeros if it is floating point, and
// has an empty Output otherwise (see Op::missing_grads). Return an empty Output for an input
// without a gradient. Called under the name scope "<node>_grad".
using GradientFunction = std::vector<Output> (*)(const Node& node, std::span<const Output> grads);

// How the work of one launch may be divided. Each value states unit and extent of the range. Bits
// never depend on the division. Pass `schedule` (passes/schedule.cc) decides which launches a plan
// divides, and how large the parts are. Other launches do all of their work at once. Op::shards
// divides a batch.
enum class WorkSplit : std::uint8_t {
  kSerial,    // not at all: the range is [0, 1)
  kElements,  // elements of output 0, or of all tensors of one participant of a collective, end to
              // end
  kRows,      // dimension 0 of output 0, of any meaning
};

// Whether an output may overwrite an input that nobody reads afterwards.
enum class InPlace : std::uint8_t {
  kNo,
  kFirst,     // output 0 over input 0
  kAny,       // output 0 over any input of its size
  kPairwise,  // output i over input i
};

// How an AutocastScope changes the inputs of a node built in it. Variables that the node writes
// stay unchanged.
enum class Autocast : std::uint8_t {
  kAny,      // stay unchanged; where f32 meets 16 bits, all become f32
  kCompute,  // f32 becomes the type of the scope: products, which 16 bits make faster
  kFull,     // 16 bits become f32: sums to a loss, moments, functions of a wide range
};

inline constexpr int kVariadicInputs = -1;

namespace detail {
// Registers an Op when its object is constructed.
struct Registered {
  explicit Registered(const Op* op);
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
};
}  // namespace detail

struct Op {
  const char* name;
  int inputs;  // or kVariadicInputs
  ShapeFunction shape = nullptr;
  GradientFunction gradient = nullptr;
  const char* no_gradient = nullptr;  // why there is none
  // `gradient` gets an empty Output, instead of zeros, for every output without gradient.
  bool missing_grads = false;

  // How plans divide it and join it with others.

  WorkSplit split = WorkSplit::kSerial;
  // Multiplies matrices, or sums over the batch: about ten times the work of other ops per byte.
  bool heavy = false;
  // The arithmetic of its products (op_work.h). Null: it has none that counts.
  OpWork (*work)(const WorkContext&) = nullptr;
  // How a node is divided into shards of a batch (shards.h). Null: the node gathers its inputs and
  // runs once.
  Sharding (*shards)(const ShardContext&) = nullptr;
  // Replaces a divided node by other nodes (plan/expansion.h), for when a shard needs results of
  // all shards.
  void (*expand)(Expansion&) = nullptr;
  // Replaces this node and some around it by one that takes one pass over memory
  // (plan/surroundings.h). The bits are those of the separate nodes.
  void (*fuse)(Surroundings&) = nullptr;
  // Recomputes output 0 from the inputs and other outputs, by one node in one pass over memory
  // (Surroundings::replace without other nodes), with the same bits. A plan may do so where
  // gradients read output 0, instead of keeping it.
  void (*rematerialise)(Surroundings&) = nullptr;
  // Every plan expands it, on any device, so it needs only the reference kernel.
  bool composite = false;

  // Its memory, and the variables that it writes.

  InPlace in_place = InPlace::kNo;
  // Output 0 is the memory of input 0, so the op is free (reshape, identity).
  bool alias = false;
  // Output 0 is memory that outlives plans: a variable, a feed, a constant.
  bool storage = false;
  // The first `writes` inputs are variables that the op writes in place. Output i, if there is one,
  // is the new value of input i.
  int writes = 0;
  // For an op that writes: element i of the variables depends only on element i of this input, and
  // on scalars. A sum that only such updates read is computed in the same pass over memory.
  int elementwise_input = -1;
  // For a collective or an update: the GPU module has a kernel that computes such sums of f32 and
  // applies such updates in registers.
  bool fused_update_on_gpus = false;

  // Several devices and processes.

  // Set for a collective, which combines a list of tensors over K participants. Inputs and outputs
  // are tensor-major: number b * K + t is tensor b of participant t. Outputs b * K .. b * K + K - 1
  // are equal, and output i lives on the device of input i. Equal outputs in one memory space are
  // one tensor, so kernels may find equal pointers among them.
  ParticipantsFunction collective = nullptr;
  // Set for a collective that runs on GPUs only. Each GPU is one rank and sums its own
  // participants; the ranks combine these sums. The function gives the divisor of the total. A
  // kernel gets the participants of one GPU: it sums them, and divides if these are all.
  DivisorFunction ranks = nullptr;
  // Set for ops that move tensors between processes. Returns the messages of one launch with these
  // tensors. The thread that talks to other processes sends and receives them; the kernel does the
  // rest.
  Exchange (*exchange)(const Node& node, const KernelPointers& pointers) = nullptr;

  // Its results, and where they are computed.

  // Results depend on the node and the step, besides inputs and options.
  bool random = false;
  // Reads only the shape of input 0, not its values, so the placer puts it with its input.
  bool metadata = false;

  // Its kernels.

  // The kernel that runs on hosts. May return an empty KernelRun for types it does not handle; the
  // reference kernel is then used.
  CpuKernel cpu = nullptr;
  // The form in which the host kernel for such a plan prefers its weights, input 1; null: as they
  // are. A plan packs weights once for all kernels that want the same form. Kernels recognise
  // packed weights by their rank 1, and take unpacked ones, too.
  std::shared_ptr<const PackedForm> (*packed_form)(const KernelPlan&) = nullptr;
  // Plain loops, obviously correct: the oracle in tests, and the fallback.
  CpuKernel reference = nullptr;
  // Host kernels take f16 and bf16 directly. Otherwise hosts run the reference kernel in f32 for
  // tensors of these types, and round its results once.
  bool half = false;
  const char* cpu_only = nullptr;  // why there is no GPU kernel
  Autocast autocast = Autocast::kAny;

  // Whether hosts can run it: by a kernel, or because nothing runs.
  bool on_host() const { return cpu || reference || alias || storage; }

  detail::Registered registered{this};
};

// Every op, in order of name. The first call checks that each has a shape function, a gradient or a
// reason for none, and a host kernel. It throws one InternalError naming all that lack one.
const std::vector<const Op*>& all_ops();

// Shape functions that many ops share.
OutputTypes same_as_input(const ShapeContext& c);  // output 0 like input 0
OutputTypes no_outputs(const ShapeContext& c);

// The gradient of an op whose output 0 is its input 0.
std::vector<Output> same_gradient(const Node& node, std::span<const Output> grads);

}  // namespace belfry
