// Variables whose values come from anywhere, one at a time, instead of a session or a checkpoint.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/tensor.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/graph/variable_role.h"

namespace belfry {

// A variable to be stored, wherever its value comes from.
struct StoredVariable {
  std::string name, description, device;
  DType dtype = DType::kF32;
  Shape shape = {};
  VariableRole role = VariableRole::kWeight;
  bool trainable = true;
  std::function<Tensor()> value;  // called once
};

// Saves a checkpoint of these variables, as save_checkpoint() does those of a session.
void save_variables(std::span<const StoredVariable> variables, std::uint64_t step,
                    const JsonValue& extra, const std::string& path,
                    FileSystem& files = local_file_system());

// The weights that a checkpoint of the graph would have.
std::map<std::string, TensorType> weight_types(const Graph& graph);

struct GivenWeights {
  std::map<std::string, TensorType> types;
  std::function<std::vector<std::byte>(const std::string& name)> value;  // of one of `types`
};

// Sets by name those weights of the session's graph that are given with the same type, as
// load_weights() does those of a checkpoint. Holds one value at a time, so an error of `value`
// leaves some weights set.
LoadedWeights load_weights(Session& session, const GivenWeights& given);

}  // namespace belfry
