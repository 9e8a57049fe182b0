// Graphs of operations and what computes them, by the backend API of cuDNN: the only sources that
// know its functions. All throw DeviceError naming the call that cuDNN refuses.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using BackendDescriptor = Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;

// A graph that is being made, and then is not changed any more. Making one needs no GPU.
class CudnnGraph {
 public:
  using Four = std::array<std::int64_t, 4>;
  struct Layout {
    Four sizes, steps;
  };
  using Tensor = cudnnBackendDescriptor_t;  // as long as the graph

  explicit CudnnGraph(const Where& where) : where_(where) {}

  // In memory that starts at a multiple of 16 bytes. A run says under this id, from 1 to 99, where.
  Tensor memory(std::int64_t id, cudnnDataType_t type, const Layout& layout);
  // One f32, of which a run says where it is on the host.
  Tensor number(std::int64_t id);
  // What an operation hands to others, and is in no memory.
  Tensor between(cudnnDataType_t type, const Layout& layout);

  // Of the last two axes; sums are of f32.
  void multiply(Tensor a, Tensor b, Tensor product);
  // Along axes of which y has size 1; in f32.
  void reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y);
  void reshape(Tensor x, Tensor y);

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    Tensor x, b = nullptr;  // null where the mode has none
    Tensor mask = nullptr;
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    std::int64_t axis = -1;
  };
  void pointwise(const Pointwise& operation, Tensor y);

  // Of all operations, in their order. To be called once.
  cudnnBackendDescriptor_t finish();

 private:
  enum class Kind : std::uint8_t { kMemory, kNumber, kBetween };
  struct Operand {
    cudnnBackendAttributeName_t name;
    cudnnBackendDescriptor_t descriptor;
  };

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
  Tensor tensor(Kind kind, std::int64_t id, cudnnDataType_t type, const Layout& layout);
  void operate(cudnnBackendDescriptorType_t type, std::span<const Operand> operands);

  Where where_;
  std::vector<BackendDescriptor> made_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t last_between_ = 99;
};

// Ways to compute a graph: first the one that cuDNN takes for the fastest. On the current GPU, or
// on one of these properties (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), which need not be there.
std::vector<BackendDescriptor> configurations(cudnnBackendDescriptor_t graph,
                                              cudnnBackendDescriptor_t device, const Where& where);

// A configuration with its kernels, which cuDNN compiles.
class CudnnPlan {
 public:
  CudnnPlan(const BackendDescriptor& configuration, cudnnBackendDescriptor_t device,
            const Where& where);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues it in the stream of the handle. addresses[i] is of id ids[i].
  cudnnStatus_t run(cudnnHandle_t handle, std::span<const std::int64_t> ids,
                    std::span<void* const> addresses, void* workspace, const Where& where) const;

 private:
  BackendDescriptor plan_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace belfry::cuda
