// The backend API of cuDNN. Descriptors are the recorder's own: it notes their attributes, and has
// two plans for each graph.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <cudnn.h>

#include "belfry/tests/recorder/library_calls.h"
#include "belfry/tests/recorder/library_handles.h"

using namespace belfry::recorder;
using belfry::cat;

namespace {

constexpr std::size_t kPlanWorkspace = 2048;

// A tensor of a graph, in memory.
struct GraphTensor {
  std::size_t bytes;
  bool on_host;  // one number
};

// A plan's data of its graph.
struct PlannedGraph {
  std::map<std::int64_t, GraphTensor> tensors;  // by id
  bool turns = false;                           // a product has a transposed factor: a gradient
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> values = {};
  PlannedGraph graph = {};  // for heuristics and their results
  int number = 0;           // the number of a configuration
};

std::set<std::unique_ptr<Descriptor>, ByAddress>& descriptors() {
  static auto& all = *new std::set<std::unique_ptr<Descriptor>, ByAddress>;
  return all;
}

Descriptor* find(cudnnBackendDescriptor_t handle, const char* function) {
  const auto found = descriptors().find(static_cast<const void*>(handle));
  if (found != descriptors().end()) return found->get();
  recorder().violate(cat(function, " of what is no descriptor"));
  return nullptr;
}

template <class T>
std::vector<T> values_of(const Descriptor& of, cudnnBackendAttributeName_t name) {
  const auto found = of.values.find(name);
  if (found == of.values.end()) return {};
  std::vector<T> values(found->second.size() / sizeof(T));
  std::memcpy(values.data(), found->second.data(), found->second.size());
  return values;
}
template <class T>
T value_of(const Descriptor& of, cudnnBackendAttributeName_t name) {
  T value{};
  const auto found = of.values.find(name);
  if (found != of.values.end()) std::memcpy(&value, found->second.data(), sizeof value);
  return value;
}
Descriptor* descriptor_of(const Descriptor& of, cudnnBackendAttributeName_t name) {
  const auto handle = value_of<cudnnBackendDescriptor_t>(of, name);
  return handle ? find(handle, "an attribute") : nullptr;
}

std::size_t size_of_type(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;  // enumerations
  }
}

std::size_t size_of_element(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}

void add_tensor(const Descriptor& tensor, PlannedGraph& to) {
  if (value_of<bool>(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) return;
  const auto sizes = values_of<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto steps = values_of<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_STRIDES);
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * steps.at(i);
  const auto element =
      size_of_element(value_of<cudnnDataType_t>(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE));
  to.tensors[value_of<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)] = {
      .bytes = static_cast<std::size_t>(last + 1) * element,
      .on_host = value_of<bool>(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
}

PlannedGraph planned(const Descriptor& graph) {
  PlannedGraph made;
  for (const auto handle :
       values_of<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Descriptor* const operation = find(handle, "an operation");
    if (!operation) continue;
    made.turns |= operation->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
    for (const auto& [name, value] : operation->values) {
      const Descriptor* const of = descriptor_of(*operation, name);
      if (of && of->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) add_tensor(*of, made);
    }
  }
  return made;
}

cudnnStatus_t finish(Descriptor& of) {
  of.finished = true;
  if (of.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    const Descriptor* const graph = descriptor_of(of, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    if (!graph) return CUDNN_STATUS_BAD_PARAM;
    of.graph = planned(*graph);
  }
  if (of.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Descriptor* const by = descriptor_of(of, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!by) return CUDNN_STATUS_BAD_PARAM;
    of.graph = by->graph;
    of.number = by->number;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Fills descriptors that the caller has made.
std::int64_t give(const Descriptor& from, std::span<const cudnnBackendDescriptor_t> to) {
  int number = 0;
  for (const auto handle : to)
    if (Descriptor* const result = find(handle, "a result")) {
      result->finished = true;
      result->graph = from.graph;
      result->number = number++;
    }
  return number;
}

// The memory that a run gives a plan, by exactly the ids of its graph.
std::vector<Given> given_by(const PlannedGraph& graph, const Descriptor& pack) {
  std::vector<Given> given;
  const auto ids = values_of<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = values_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != graph.tensors.size() || addresses.size() != ids.size())
    recorder().violate(cat("a graph of ", graph.tensors.size(), " tensors is given ", ids.size()));
  for (std::size_t i = 0; i < std::min(ids.size(), addresses.size()); ++i) {
    const auto found = graph.tensors.find(ids[i]);
    if (found == graph.tensors.end())
      recorder().violate(cat("a graph has no tensor ", ids[i]));
    else if (!found->second.on_host)
      given.push_back({addresses[i], found->second.bytes});
    else if (recorder().allocation_of(addresses[i]))
      recorder().violate(cat("the number ", ids[i], " is not on the host"));
  }
  given.push_back({value_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), kPlanWorkspace, 256});
  return given;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return recorder().call<cudnnStatus_t>("cudnnBackendCreateDescriptor", kNowhere, [&] {
    ++recorder().handles["descriptors of cuDNN"];
    *descriptor = descriptors().insert(std::make_unique<Descriptor>(type)).first->get();
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return recorder().call<cudnnStatus_t>("cudnnBackendDestroyDescriptor", kFrees, [&] {
    const auto found = descriptors().find(static_cast<const void*>(descriptor));
    if (found == descriptors().end()) return CUDNN_STATUS_BAD_PARAM;
    descriptors().erase(found);
    --recorder().handles["descriptors of cuDNN"];
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  constexpr const char* kName = "cudnnBackendSetAttribute";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    Descriptor* const of = find(descriptor, kName);
    if (!of || of->finished || count < 1) return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
      for (std::int64_t i = 0; i < count; ++i) {
        const auto* const value =
            find(static_cast<const cudnnBackendDescriptor_t*>(values)[i], kName);
        if (!value || !value->finished) return CUDNN_STATUS_BAD_PARAM;
      }
    const auto* const bytes = static_cast<const std::byte*>(values);
    of->values[name].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of_type(type));
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  constexpr const char* kName = "cudnnBackendFinalize";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    Descriptor* const of = find(descriptor, kName);
    return of && !of->finished ? finish(*of) : CUDNN_STATUS_BAD_PARAM;
  });
}

// Attributes of heuristics and plans, which are made before a step runs.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t most,
                                       std::int64_t* count, void* values) {
  constexpr const char* kName = "cudnnBackendGetAttribute";
  return recorder().call<cudnnStatus_t>(kName, kInSteps | kInCaptures, [&] {
    const Descriptor* const of = find(descriptor, kName);
    if (!of || !of->finished) return CUDNN_STATUS_NOT_INITIALIZED;
    const std::span to(static_cast<cudnnBackendDescriptor_t*>(values),
                       static_cast<std::size_t>(most));
    switch (name) {
      case CUDNN_ATTR_ENGINEHEUR_RESULTS: *count = most == 0 ? 2 : give(*of, to); break;
      case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *static_cast<std::int64_t*>(values) = kPlanWorkspace;
        *count = 1;
        break;
      default: return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  constexpr const char* kName = "cudnnBackendExecute";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    const Handle& by = handle_of(handle, kName);
    const Descriptor* const of = find(plan, kName);
    const Descriptor* const tensors = find(pack, kName);
    if (!of || !of->finished || !tensors || !tensors->finished) return CUDNN_STATUS_BAD_PARAM;
    return enqueue(by.stream, kName,
                   cat(of->graph.turns ? "gradient" : "forward", ", configuration ", of->number),
                   given_by(of->graph, *tensors))
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_MAPPING_ERROR;
  });
}

}  // extern "C"
