// Writes models for scripts/check_onnx, as ONNX itself keeps its tests: model.onnx, and folders
// with inputs and outputs as messages.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/onnx/onnx_graph_impl.h"
#include "belfry/trainers/onnx/write_onnx.h"

namespace belfry::bench {

inline std::string tensor_message(const std::string& name, const Tensor& value) {
  enum { kDims = 1, kType = 2, kName = 8, kRawData = 9 };
  ProtoMessage message;
  for (const std::int64_t size : value.shape().dims()) message.add(kDims, size);
  message.add(kType, onnx::onnx_type(value.dtype()));
  message.add(kName, name);
  message.add(kRawData, {reinterpret_cast<const char*>(value.raw()), value.bytes()});
  return message.bytes();
}

// FOLDER/model.onnx, and what the session computes from each of `batches`, which have a tensor for
// each input.
inline void write_onnx_test(const std::string& folder, const PredictingGraph& graph,
                            Session& session, std::span<const std::vector<Tensor>> batches,
                            const OnnxOptions& options = {}) {
  FileSystem& files = local_file_system();
  files.create_directory(folder);
  const std::vector<Variable> variables = session.graph().variables();
  std::vector<Tensor> values;
  std::map<std::string, std::span<const std::byte>> weights;
  for (const Variable& variable : variables) values.push_back(session.read(variable));
  for (std::size_t i = 0; i < values.size(); ++i)
    weights[std::string(variables[i].logical_name())] = {values[i].raw(), values[i].bytes()};
  write_onnx(graph, weights, folder + "/model.onnx", files, options);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::string set = cat(folder, "/test_data_set_", i);
    files.create_directory(set);
    std::vector<FeedValue> feeds;
    for (std::size_t k = 0; k < graph.inputs.size(); ++k) {
      const Output input = graph.inputs[k];
      const std::string name(input.node().logical_name());
      feeds.push_back({input, batches[i][k]});
      write_text_file(files, cat(set, "/input_", k, ".pb"), tensor_message(name, batches[i][k]));
    }
    for (std::size_t k = 0; k < graph.outputs.size(); ++k) {
      const auto& [name, output] = graph.outputs[k];
      write_text_file(files, cat(set, "/output_", k, ".pb"),
                      tensor_message(name, session.run(output, feeds)));
    }
  }
}

}  // namespace belfry::bench
