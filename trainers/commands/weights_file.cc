#include "belfry/trainers/commands/weights_file.h"

#include <cstring>
#include <map>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/framework/kernels/half.h"

namespace belfry {
namespace {

constexpr char kLayout[] = "layout";  // in the metadata of a file

std::size_t element_size(const Manifest::Entry& entry) { return size_of(entry.dtype); }

// Which tensor each one of the file comes from: the weights, or all tensors as they are.
ChosenWeights exported_tensors(const CheckpointHead& head, const ExportOptions& options) {
  if (!options.state) return choose_weights(head.manifest, options.weights, head.directory);
  ChosenWeights all;
  for (const auto& [name, entry] : head.manifest.tensors) all.tensors[name] = name;
  return all;
}

}  // namespace

ExportedWeights export_weights(const StoredCheckpoint& checkpoint, const ExportOptions& options) {
  const Manifest& manifest = checkpoint.head.manifest;
  ExportedWeights result{.chosen = exported_tensors(checkpoint.head, options)};
  std::vector<StoredTensor> tensors;
  for (const auto& [name, from] : result.chosen.tensors) {
    const Manifest::Entry& entry = manifest.tensors.at(name);
    const AxisOrder order = axis_order(manifest, name, options.layout);
    if (!order.empty()) result.permuted.push_back(name);
    tensors.push_back({.name = name, .dtype = entry.dtype, .shape = permuted(entry.shape, order)});
  }
  result.tensors = tensors.size();
  std::map<std::string, std::string> metadata = kFileMetadata;
  metadata[kLayout] = name_of(options.layout);
  metadata["step"] = cat(manifest.shown_step());
  metadata["weights"] = name_of(result.chosen.values);
  result.file = lay_out_safetensors(tensors, metadata);
  for (const StoredTensor& tensor : tensors) {
    const Manifest::Entry& entry = manifest.tensors.at(tensor.name);
    const std::vector<std::byte> values =
        permuted(checkpoint.values(result.chosen.tensors.at(tensor.name)), entry.shape,
                 element_size(entry), axis_order(manifest, tensor.name, options.layout));
    result.file.append(reinterpret_cast<const char*>(values.data()), values.size());
  }
  return result;
}

namespace {

std::vector<std::string> names_of(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : manifest.tensors) names.push_back(name);
  return names;
}

// Reads no more than a file of these variables may have.
Safetensors read_weights(const std::string& path, const Manifest& like, FileSystem& files) {
  std::uint64_t most = 2 * kMostJsonBytes;
  for (const auto& [name, file] : like.files) most += file.bytes;
  return Safetensors(files.read(path, most), path);
}

WeightLayout layout_of(const Safetensors& file, const ImportOptions& options) {
  if (options.layout) return *options.layout;
  const auto named = file.metadata().find(kLayout);
  if (named == file.metadata().end()) return WeightLayout::kBelfry;
  try {
    return find_weight_layout(named->second);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(about_option("layout", file.file(), ": its metadata: ", error.what(),
                                       "; name one (", the_option("layout"), ")"));
  }
}

std::string place_of(const Safetensors& file, const StoredTensor& tensor) {
  return cat(file.file(), ": tensor '", shown(tensor.name), "' at byte ", tensor.begin);
}

// Whether each value of a type is one of another type, too.
bool widens(DType from, DType to) {
  if (from == to) return true;
  return is_half(from) ? to == DType::kF32 || to == DType::kF64
                       : from == DType::kF32 && to == DType::kF64;
}

// What to do about a tensor of the wrong type.
std::string type_hint(DType dtype) {
  const std::string_view also = dtype == DType::kF64   ? ", f32, f16 or bf16"
                                : dtype == DType::kF32 ? ", f16 or bf16"
                                                       : "";
  return cat("; write the file with ", name_of(dtype), also);
}

// A hint if the tensor would fit in the other layout, else "".
std::string layout_hint(const Manifest& like, const StoredTensor& tensor, WeightLayout layout) {
  const WeightLayout other =
      layout == WeightLayout::kTorch ? WeightLayout::kBelfry : WeightLayout::kTorch;
  const Shape shape =
      permuted(like.tensors.at(tensor.name).shape, axis_order(like, tensor.name, other));
  return shape == tensor.shape
             ? cat("; it would fit in the layout ", name_of(other), " (", the_option("layout"), ")")
             : "";
}

// The values in a type that has them all.
std::vector<std::byte> widened_values(std::span<const std::byte> values, DType from, DType to) {
  if (from == to) return {values.begin(), values.end()};
  const std::size_t count = values.size() / size_of(from);
  std::vector<float> wide(count);
  if (is_half(from)) {
    std::vector<std::uint16_t> narrow(count);
    std::memcpy(narrow.data(), values.data(), values.size());
    kernels::half_conversion(from).widen(narrow.data(), wide.data(),
                                         static_cast<std::int64_t>(count));
  } else {
    std::memcpy(wide.data(), values.data(), values.size());
  }
  const auto bytes_of = [](const auto& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (to == DType::kF32) return bytes_of(wide);
  return bytes_of(std::vector<double>(wide.begin(), wide.end()));
}

// Throws unless the tensor may be imported.
void check_tensor(const Safetensors& file, const StoredTensor& tensor, const CheckpointHead& like,
                  WeightLayout layout) {
  const auto& [name, dtype, shape, begin, end] = tensor;
  const auto found = like.manifest.tensors.find(name);
  require(found != like.manifest.tensors.end(), place_of(file, tensor), ": the checkpoint ",
          like.directory, " has no variable of this name",
          did_you_mean(name, names_of(like.manifest)));
  const Shape wanted = permuted(found->second.shape, axis_order(like.manifest, name, layout));
  const bool fits = widens(dtype, found->second.dtype);
  require(fits && shape == wanted, place_of(file, tensor), ": is ", TensorType{shape, dtype},
          ", but the checkpoint ", like.directory, ", in the layout ", name_of(layout), ", has ",
          TensorType{wanted, found->second.dtype},
          fits ? layout_hint(like.manifest, tensor, layout) : type_hint(found->second.dtype));
}

void check_whole(const Safetensors& file, const CheckpointHead& like) {
  std::vector<std::string> there;
  for (const auto& [name, tensor] : file.tensors()) there.push_back(name);
  for (const auto& [name, entry] : like.manifest.tensors)
    require(entry.role != VariableRole::kWeight || file.tensors().contains(name), file.file(),
            ": has no tensor '", shown(name), "', which the checkpoint ", like.directory, " has",
            did_you_mean(name, there));
}

// The variables of a checkpoint in a separate graph, saved with new values.
class Copy {
 public:
  explicit Copy(const StoredCheckpoint& like) : like_(like) {
    for (const auto& [name, entry] : like.head.manifest.tensors) add(name, entry);
  }

  void save(const std::map<std::string, std::vector<std::byte>>& values, const std::string& path,
            FileSystem& files) const {
    std::vector<VariableBytes> all;
    for (const auto& [name, variable] : variables_) {
      const auto found = values.find(name);
      all.push_back({variable, found == values.end() ? like_.values(name) : found->second});
    }
    Session session(graph_, {.threads = 1});
    session.restore(all, like_.head.manifest.step);
    save_checkpoint(session, path, like_.head.manifest.extra, files);
  }

 private:
  void add(const std::string& name, const Manifest::Entry& entry) {
    VariableOptions options{.dtype = entry.dtype,
                            .initializer = init::zeros(),
                            .trainable = entry.trainable,
                            .collections = {std::string(kGlobalVariables)}};
    if (entry.role != VariableRole::kWeight)
      options.collections.emplace_back(entry.role == VariableRole::kAverage ? kAverageVariables
                                                                            : kStateVariables);
    variables_.emplace(name, graph_.create_variable({name, entry.shape, std::move(options)}, At()));
  }

  const StoredCheckpoint& like_;
  Graph graph_;
  std::map<std::string, Variable> variables_;
};

// Lets `save` write a new checkpoint next to the old one, and removes the old one only after that.
template <class Save>
void replace(const std::string& path, FileSystem& files, const Save& save) {
  const std::string place = files.resolve(path), saved = temporary_name(place);
  save(saved);
  remove_tree(files, place);
  files.rename(saved, place);
}

// Whether a checkpoint is to be replaced. Throws IoError if something is there that must not be.
bool replaces(const std::string& path, const ImportOptions& options, FileSystem& files) {
  if (files.kind(path) == FileKind::kNone) return false;
  if (!options.overwrite)
    throw IoError(about_option(
        "overwrite", path,
        " is there; nothing was changed: import elsewhere, or ask for it to be replaced (",
        the_option("overwrite"), ")"));
  require<IoError>(is_checkpoint(path, files) && foreign_name_in(path, files).empty(), path,
                   " is no checkpoint, or holds other files, too; nothing was changed: import "
                   "elsewhere");
  return true;
}

}  // namespace

ImportedWeights import_weights(const std::string& weights, const StoredCheckpoint& like,
                               const std::string& path, const ImportOptions& options,
                               FileSystem& files) {
  const bool is_replaced = replaces(path, options, files);
  const Manifest& manifest = like.head.manifest;
  const Safetensors file = read_weights(weights, manifest, files);
  ImportedWeights result{.tensors = file.tensors().size(), .layout = layout_of(file, options)};
  std::map<std::string, std::vector<std::byte>> values;
  for (const auto& [name, tensor] : file.tensors()) {
    check_tensor(file, tensor, like.head, result.layout);
    const AxisOrder order = inverse(axis_order(manifest, name, result.layout));
    if (!order.empty()) result.permuted.push_back(name);
    const DType dtype = manifest.tensors.at(name).dtype;
    if (dtype != tensor.dtype) ++result.widened;
    const std::vector<std::byte> wide = widened_values(file.values(tensor), tensor.dtype, dtype);
    values[name] = permuted(wide, tensor.shape, size_of(dtype), order);
  }
  check_whole(file, like.head);
  for (const auto& [name, entry] : manifest.tensors)
    if (entry.role == VariableRole::kAverage && !values.contains(name)) {
      values[name] = values.at(entry.average_of);
      result.begun.push_back(name);
    }
  for (const auto& [name, entry] : manifest.tensors)
    if (!values.contains(name)) result.kept.push_back(name);
  if (is_replaced)
    replace(path, files, [&](const std::string& place) { Copy(like).save(values, place, files); });
  else
    Copy(like).save(values, path, files);
  return result;
}

}  // namespace belfry
