#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "belfry/framework/base/replacing_file.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/onnx/onnx_file_impl.h"
#include "belfry/trainers/onnx/write_onnx.h"

namespace belfry::onnx {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const ProtoMessage& message) { return std::as_bytes(std::span(message.bytes())); }

// Images or filters [n,h,w,c] of this size as [n,c,h,w].
std::vector<std::byte> with_channels_first(Bytes x, const Shape& shape, std::size_t element) {
  const auto n = static_cast<std::size_t>(shape[0]), c = static_cast<std::size_t>(shape[3]),
             pixels = static_cast<std::size_t>(shape[1] * shape[2]);
  std::vector<std::byte> y(x.size());
  std::byte* to = y.data();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t channel = 0; channel < c; ++channel)
      for (std::size_t pixel = 0; pixel < pixels; ++pixel, to += element)
        std::memcpy(to, x.data() + ((i * pixels + pixel) * c + channel) * element, element);
  return y;
}

class FileWriter {
 public:
  FileWriter(const OnnxFile& file, const std::string& path, FileSystem& files)
      : file_(file), path_(path), files_(files) {
    std::int64_t bytes = 0;
    for (const Initialiser& tensor : file.initialisers) bytes += tensor.type.bytes();
    outside_ = bytes > file.inside;
  }

  void write() {
    for (const Initialiser& tensor : file_.initialisers) {
      value_of(tensor);  // refuses before there is a file
      heads_.push_back(head_of(tensor));
    }
    std::optional<ReplacingFile> data;
    if (outside_) write_tensors(data.emplace(files_, onnx_data_path(path_)));
    ReplacingFile model(files_, path_);
    write_model(model);
    if (data) data->replace();  // only now that both are complete
    model.replace();
  }

 private:
  // By the numbers of onnx.proto.
  enum TensorField {
    kDims = 1,
    kType = 2,
    kName = 8,
    kRawData = 9,
    kExternal = 13,
    kLocation = 14
  };

  bool is_outside(const Initialiser& tensor) const {
    return outside_ && tensor.type.bytes() >= kLeastOutside;
  }

  // All of a TensorProto but its values, which follow if they are inside.
  ProtoMessage head_of(const Initialiser& tensor) {
    ProtoMessage head;
    for (const std::int64_t size : tensor.type.shape.dims()) head.add(kDims, size);
    head.add(kType, onnx_type(tensor.type.dtype));
    head.add(kName, tensor.name);
    if (!is_outside(tensor)) {
      head.add_head(kRawData, static_cast<std::uint64_t>(tensor.type.bytes()));
      return head;
    }
    const std::int64_t begin = (end_ + kAlignment - 1) / kAlignment * kAlignment;
    end_ = begin + tensor.type.bytes();
    add_entry(head, "location", name_of_data());
    add_entry(head, "offset", std::to_string(begin));
    add_entry(head, "length", std::to_string(tensor.type.bytes()));
    head.add(kLocation, std::int64_t{1});
    return head;
  }
  static void add_entry(ProtoMessage& head, std::string_view key, const std::string& value) {
    enum { kKey = 1, kValue = 2 };
    ProtoMessage entry;
    entry.add(kKey, key);
    entry.add(kValue, value);
    head.add(kExternal, entry);
  }
  std::string name_of_data() const {
    const std::string path = onnx_data_path(path_);
    return path.substr(path.find_last_of('/') + 1);  // all of it if there is no slash
  }

  Bytes value_of(const Initialiser& tensor) const {
    if (const Tensor* const constant = std::get_if<Tensor>(&tensor.value))
      return {constant->raw(), constant->bytes()};
    const Node& variable = *std::get<const Node*>(tensor.value);
    const auto at = file_.weights.find(std::string(variable.logical_name()));
    require(at != file_.weights.end(), variable.describe(),
            " has no value among the weights of the ONNX file");
    require(static_cast<std::int64_t>(at->second.size()) == tensor.type.bytes(),
            variable.describe(), " has ", at->second.size(),
            " bytes among the weights of the ONNX file, not ", tensor.type.bytes());
    return at->second;
  }
  void append_value(ReplacingFile& file, const Initialiser& tensor) const {
    const Bytes value = value_of(tensor);
    if (tensor.layout == Layout::kAsInBelfry) return file.append(value);
    const Shape& s = tensor.type.shape;
    file.append(with_channels_first(value, {s[0], s[2], s[3], s[1]}, size_of(tensor.type.dtype)));
  }

  void write_tensors(ReplacingFile& data) {
    std::int64_t end = 0;
    for (const Initialiser& tensor : file_.initialisers) {
      if (!is_outside(tensor)) continue;
      const std::int64_t begin = (end + kAlignment - 1) / kAlignment * kAlignment;
      data.append(std::vector<std::byte>(static_cast<std::size_t>(begin - data.size())));
      append_value(data, tensor);
      end = begin + tensor.type.bytes();
    }
    data.complete();
  }

  void write_model(ReplacingFile& out) {
    enum { kIrVersion = 1, kProducer = 2, kGraph = 7, kOpset = 8, kVersion = 2, kInitialiser = 5 };
    ProtoMessage opset, model;
    opset.add(kVersion, kOnnxOpset);
    model.add(kIrVersion, std::int64_t{8});
    model.add(kProducer, std::string_view("belfry"));
    model.add(kOpset, opset);
    std::vector<ProtoMessage> keys(heads_.size());
    std::size_t bytes = file_.graph.bytes().size();
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      const Initialiser& tensor = file_.initialisers[i];
      const std::size_t values =
          is_outside(tensor) ? 0 : static_cast<std::size_t>(tensor.type.bytes());
      const std::size_t whole = heads_[i].bytes().size() + values;
      keys[i].add_head(kInitialiser, whole);
      bytes += keys[i].bytes().size() + whole;
    }
    model.add_head(kGraph, bytes);
    out.append(bytes_of(model));
    out.append(bytes_of(file_.graph));
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      out.append(bytes_of(keys[i]));
      out.append(bytes_of(heads_[i]));
      if (!is_outside(file_.initialisers[i])) append_value(out, file_.initialisers[i]);
    }
    out.complete();
  }

  static constexpr std::int64_t kLeastOutside = 1024;  // smaller tensors are not worth a read
  static constexpr std::int64_t kAlignment = 4096;     // so that a reader may map the file

  const OnnxFile& file_;
  const std::string& path_;
  FileSystem& files_;
  bool outside_ = false;
  std::int64_t end_ = 0;  // of what is outside
  std::vector<ProtoMessage> heads_;
};

}  // namespace

void write_onnx_file(const OnnxFile& file, const std::string& path, FileSystem& files) {
  FileWriter(file, path, files).write();
}

}  // namespace belfry::onnx

namespace belfry {

std::string onnx_data_path(const std::string& path) { return path + ".data"; }

}  // namespace belfry
