// Puts the parts of an ONNX file together.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/onnx/onnx_graph_impl.h"

namespace belfry::onnx {

struct OnnxFile {
  const ProtoMessage& graph;  // without initialisers
  std::span<const Initialiser> initialisers;
  const std::map<std::string, std::span<const std::byte>>& weights;
  std::int64_t inside;  // more bytes of tensors are in the file `path`.data
};

// Throws as write_onnx() does.
void write_onnx_file(const OnnxFile& file, const std::string& path, FileSystem& files);

}  // namespace belfry::onnx
