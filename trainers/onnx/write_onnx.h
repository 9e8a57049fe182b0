// ONNX files of graphs that predict, for onnxruntime and other programs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/graph_file.h"

namespace belfry {

// The opset of the files: that of ONNX 1.12, which is widely read.
inline constexpr std::int64_t kOnnxOpset = 17;

struct OnnxOptions {
  // If tensors have more bytes than this, they are in a second file: protocol buffers, and so ONNX
  // files, have less than 2 GiB.
  std::int64_t most_bytes = std::int64_t{2000} << 20;
};

// Writes the file `path`, and perhaps its tensors to `path`.data beside it, which has to stay
// there. `weights`: the value of each variable, by its logical name. The file has the nodes that
// outputs depend on, with inputs by their logical names. Unknown dimensions stay free; that of the
// samples is called "batch".
//
// Inputs and outputs have Belfry's shapes, such as images [n,h,w,c]. Convolutions of ONNX take
// [n,c,h,w], so images are transposed where they begin and end to have channels first, and filters
// are [out,in,h,w]. Other variables are initialisers as they are. Random numbers are drawn anew.
//
// Throws InvalidArgument, with the node and its line, for an op that cannot be exported, and for an
// input or weights that are missing; IoError if a file cannot be written. Then no file is replaced.
void write_onnx(const PredictingGraph& graph,
                const std::map<std::string, std::span<const std::byte>>& weights,
                const std::string& path, FileSystem& files = local_file_system(),
                const OnnxOptions& options = {});
// The second file beside `path`.
std::string onnx_data_path(const std::string& path);

}  // namespace belfry
