#include "belfry/framework/cuda/runtime/cudnn_graph.h"

#include <algorithm>

#include "belfry/framework/base/require.h"

namespace belfry::cuda {
namespace {

// Attributes since cuDNN 9.8; the header may be older.
constexpr auto kHeuristicsDevice = static_cast<cudnnBackendAttributeName_t>(204);
constexpr auto kPlanDevice = static_cast<cudnnBackendAttributeName_t>(407);

// How cuDNN names types of attributes.
template <class T>
constexpr cudnnBackendAttributeType_t kTypeName = CUDNN_TYPE_VOID_PTR;
template <>
constexpr auto kTypeName<bool> = CUDNN_TYPE_BOOLEAN;
template <>
constexpr auto kTypeName<std::int64_t> = CUDNN_TYPE_INT64;
template <>
constexpr auto kTypeName<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
constexpr auto kTypeName<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
constexpr auto kTypeName<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
constexpr auto kTypeName<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
constexpr auto kTypeName<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;

BackendDescriptor make_descriptor(cudnnBackendDescriptorType_t type, const Where& where) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  BELFRY_GPU_CALL(cudnnBackendCreateDescriptor(type, &descriptor), where);
  return BackendDescriptor(descriptor);
}

void set_attributes(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, std::size_t count, const void* values,
                    const Where& where) {
  BELFRY_GPU_CALL(
      cudnnBackendSetAttribute(of, name, type, static_cast<std::int64_t>(count), values),
      "attribute ", static_cast<int>(name), " ", where);
}

template <class T>
void set_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, const T& value,
                   const Where& where) {
  set_attributes(of, name, kTypeName<T>, 1, &value, where);
}

void finalize(cudnnBackendDescriptor_t descriptor, const Where& where) {
  BELFRY_GPU_CALL(cudnnBackendFinalize(descriptor), where);
}

// Reads at most `most` values; returns how many there are.
std::int64_t get_attributes(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::size_t most, void* values,
                            const Where& where) {
  std::int64_t count = 0;
  BELFRY_GPU_CALL(
      cudnnBackendGetAttribute(of, name, type, static_cast<std::int64_t>(most), &count, values),
      "attribute ", static_cast<int>(name), " ", where);
  return count;
}

}  // namespace

cudnnBackendDescriptor_t CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  return made_.emplace_back(make_descriptor(type, where_)).get();
}

CudnnGraph::Tensor CudnnGraph::tensor(Kind kind, std::int64_t id, cudnnDataType_t type,
                                      const Layout& layout) {
  const Tensor tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_attribute(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type, where_);
  for (const auto& [name, numbers] : {std::pair(CUDNN_ATTR_TENSOR_DIMENSIONS, &layout.sizes),
                                      std::pair(CUDNN_ATTR_TENSOR_STRIDES, &layout.steps)})
    set_attributes(tensor, name, CUDNN_TYPE_INT64, numbers->size(), numbers->data(), where_);
  set_attribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id, where_);
  set_attribute(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16}, where_);
  set_attribute(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, kind == Kind::kBetween, where_);
  set_attribute(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, kind == Kind::kNumber, where_);
  finalize(tensor, where_);
  return tensor;
}

CudnnGraph::Tensor CudnnGraph::memory(std::int64_t id, cudnnDataType_t type, const Layout& layout) {
  return tensor(Kind::kMemory, id, type, layout);
}
CudnnGraph::Tensor CudnnGraph::number(std::int64_t id) {
  return tensor(Kind::kNumber, id, CUDNN_DATA_FLOAT, {{1, 1, 1, 1}, {1, 1, 1, 1}});
}
CudnnGraph::Tensor CudnnGraph::between(cudnnDataType_t type, const Layout& layout) {
  return tensor(Kind::kBetween, ++last_between_, type, layout);
}

void CudnnGraph::operate(cudnnBackendDescriptorType_t type, std::span<const Operand> operands) {
  const cudnnBackendDescriptor_t operation = make(type);
  for (const auto& [name, descriptor] : operands)
    if (descriptor) set_attribute(operation, name, descriptor, where_);
  finalize(operation, where_);
  operations_.push_back(operation);
}

void CudnnGraph::multiply(Tensor a, Tensor b, Tensor product) {
  const cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_attribute(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT, where_);
  finalize(how, where_);
  operate(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
          std::array{Operand{CUDNN_ATTR_OPERATION_MATMUL_DESC, how},
                     Operand{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                     Operand{CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                     Operand{CUDNN_ATTR_OPERATION_MATMUL_CDESC, product}});
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y) {
  const cudnnBackendDescriptor_t reduction = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set_attribute(reduction, CUDNN_ATTR_REDUCTION_OPERATOR, how, where_);
  set_attribute(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT, where_);
  finalize(reduction, where_);
  operate(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
          std::array{Operand{CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction},
                     Operand{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                     Operand{CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  operate(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
          std::array{Operand{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x},
                     Operand{CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
}

void CudnnGraph::pointwise(const Pointwise& operation, Tensor y) {
  const cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set_attribute(how, CUDNN_ATTR_POINTWISE_MODE, operation.mode, where_);
  set_attribute(how, CUDNN_ATTR_POINTWISE_MATH_PREC, operation.computed, where_);
  if (operation.axis >= 0) set_attribute(how, CUDNN_ATTR_POINTWISE_AXIS, operation.axis, where_);
  finalize(how, where_);
  operate(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
          std::array{Operand{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how},
                     Operand{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, operation.x},
                     Operand{CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operation.b},
                     Operand{CUDNN_ATTR_OPERATION_POINTWISE_TDESC, operation.mask},
                     Operand{CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

cudnnBackendDescriptor_t CudnnGraph::finish() {
  const cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set_attributes(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 operations_.size(), operations_.data(), where_);
  finalize(graph, where_);
  return graph;
}

std::vector<BackendDescriptor> configurations(cudnnBackendDescriptor_t graph,
                                              cudnnBackendDescriptor_t device, const Where& where) {
  const BackendDescriptor heuristics = make_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, where);
  set_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, where);
  set_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A, where);
  if (device) set_attribute(heuristics.get(), kHeuristicsDevice, device, where);
  finalize(heuristics.get(), where);
  const auto results = [&](std::vector<cudnnBackendDescriptor_t> to) {
    return static_cast<std::size_t>(get_attributes(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, to.size(),
                                                   to.data(), where));
  };
  std::vector<BackendDescriptor> all(results({}));
  if (all.empty()) return all;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (BackendDescriptor& one : all) {
    one = make_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, where);
    handles.push_back(one.get());
  }
  all.resize(std::min(all.size(), results(handles)));
  return all;
}

CudnnPlan::CudnnPlan(const BackendDescriptor& configuration, cudnnBackendDescriptor_t device,
                     const Where& where)
    : plan_(make_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, where)) {
  set_attribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.get(), where);
  if (device) set_attribute(plan_.get(), kPlanDevice, device, where);
  finalize(plan_.get(), where);
  get_attributes(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                 &workspace_bytes_, where);
}

cudnnStatus_t CudnnPlan::run(cudnnHandle_t handle, std::span<const std::int64_t> ids,
                             std::span<void* const> addresses, void* workspace,
                             const Where& where) const {
  const BackendDescriptor tensors = make_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, where);
  set_attributes(tensors.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.size(),
                 ids.data(), where);
  set_attributes(tensors.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                 addresses.size(), addresses.data(), where);
  set_attributes(tensors.get(), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                 &workspace, where);
  finalize(tensors.get(), where);
  forget_details<cudnnStatus_t>();
  return cudnnBackendExecute(handle, plan_.get(), tensors.get());
}

}  // namespace belfry::cuda
