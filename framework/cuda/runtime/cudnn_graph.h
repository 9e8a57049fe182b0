// Graphs of operations and their plans, by the backend API of cuDNN. No other source calls its
// functions. All functions here throw DeviceError naming the call that cuDNN refuses.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using BackendDescriptor = Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;

// A graph, immutable once made. Making one needs no GPU.
class CudnnGraph {
 public:
  using Four = std::array<std::int64_t, 4>;
  struct Layout {
    Four sizes, steps;
  };
  using Tensor = cudnnBackendDescriptor_t;  // lives as long as the graph

  explicit CudnnGraph(const Where& where) : where_(where) {}

  // A tensor in memory that starts at a multiple of 16 bytes. A run gives its address by this id,
  // from 1 to 99.
  Tensor memory(std::int64_t id, cudnnDataType_t type, const Layout& layout);
  // One f32 on the host; a run gives its address.
  Tensor number(std::int64_t id);
  // A tensor that an operation hands to others; it is in no memory.
  Tensor between(cudnnDataType_t type, const Layout& layout);

  // Multiplies matrices in the last two axes; sums are of f32.
  void multiply(Tensor a, Tensor b, Tensor product);
  // Reduces, in f32, along the axes where y has size 1.
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

  // The graph of all operations, in their order. Call it once.
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

// The ways to compute a graph; cuDNN expects the first to be the fastest. `device` has the
// properties of a GPU (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), which need not be present; null: the
// current GPU.
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
