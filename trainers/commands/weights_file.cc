#include "belfry/trainers/commands/weights_file.h"

#include <algorithm>
#include <functional>
#include <list>
#include <map>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/replacing_file.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/given_values.h"
#include "belfry/framework/checkpoint/tensor_files.h"
#include "belfry/trainers/names/named_weights.h"
#include "belfry/trainers/util/converted_values.h"

namespace belfry {
namespace {

constexpr char kLayout[] = "layout";  // in the metadata of a file

// Which tensor each one of the file comes from: the weights, or all tensors as they are.
ChosenWeights exported_tensors(const CheckpointHead& head, const ExportOptions& options) {
  if (!options.state) return choose_weights(head.manifest, options.weights, head.directory);
  ChosenWeights all;
  for (const auto& [name, entry] : head.manifest.tensors) all.tensors[name] = name;
  return all;
}

// A tensor of the file, whose values are made when they are written.
struct ExportedTensor {
  TensorType type;
  std::function<std::vector<std::byte>()> values;
};
using ExportedTensors = std::map<std::string, ExportedTensor>;

// In the layout, under our names.
ExportedTensors in_layout(const StoredCheckpoint& checkpoint, WeightLayout layout,
                          ExportedWeights& result) {
  const Manifest& manifest = checkpoint.head.manifest;
  ExportedTensors tensors;
  for (const auto& [name, from] : result.chosen.tensors) {
    const Manifest::Entry& entry = manifest.tensors.at(name);
    const AxisOrder order = axis_order(manifest, name, layout);
    if (!order.empty()) result.permuted.push_back(name);
    tensors[name] = {
        {permuted(entry.shape, order), entry.dtype}, [&checkpoint, &entry, from, order] {
          return permuted(checkpoint.values(from), entry.shape, size_of(entry.dtype), order);
        }};
  }
  return tensors;
}

// The chosen weights of a checkpoint, to be renamed.
TensorSource weights_in(const StoredCheckpoint& checkpoint, const ChosenWeights& chosen) {
  TensorSource source{.read =
                          [&](const std::string& name) {
                            const auto values = checkpoint.values(chosen.tensors.at(name));
                            return std::vector<std::byte>(values.begin(), values.end());
                          },
                      .place =
                          [&](const std::string& name) {
                            return cat(checkpoint.head.directory, ": weight '", shown(name), "'");
                          }};
  for (const auto& [name, from] : chosen.tensors) {
    const Manifest::Entry& entry = checkpoint.head.manifest.tensors.at(from);
    source.types[name] = {entry.shape, entry.dtype};
  }
  return source;
}

// What is to be exported.
class WeightExport {
 public:
  WeightExport(const StoredCheckpoint& checkpoint, const ExportOptions& options)
      : metadata_(kFileMetadata) {
    result.chosen = exported_tensors(checkpoint.head, options);
    metadata_["step"] = cat(checkpoint.head.manifest.shown_step());
    metadata_["weights"] = name_of(result.chosen.values);
    if (options.names) {
      metadata_["format"] = "pt";  // transformers opens no file that says something else
      renamed_.emplace(weights_in(checkpoint, result.chosen), *options.names,
                       RenamingOptions{.way = RenamingWay::kToTheirs, .partial = options.partial});
      for (const auto& [name, target] : renamed_->tensors())
        tensors_[name] = {target.type, [this, name] { return renamed_->value(name); }};
      result.left_out = renamed_->left_out();
    } else {
      metadata_[kLayout] = name_of(options.layout);
      tensors_ = in_layout(checkpoint, options.layout, result);
    }
    result.tensors = tensors_.size();
  }
  WeightExport(const WeightExport&) = delete;
  WeightExport& operator=(const WeightExport&) = delete;

  ExportedWeights result;

  // In the order of their names.
  std::vector<StoredTensor> tensors() const {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, tensor] : tensors_)
      tensors.push_back({.name = name, .dtype = tensor.type.dtype, .shape = tensor.type.shape});
    return tensors;
  }
  std::string bytes_of_file(std::vector<StoredTensor> tensors) const {
    std::string file = lay_out_safetensors(tensors, metadata_);
    for (const StoredTensor& tensor : tensors) {
      const std::vector<std::byte> values = tensors_.at(tensor.name).values();
      file.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    return file;
  }

 private:
  std::map<std::string, std::string> metadata_;
  std::optional<RenamedTensors> renamed_;
  ExportedTensors tensors_;
};

// The tensors of each file, of at most so many bytes.
std::vector<std::vector<StoredTensor>> in_shards(const std::vector<StoredTensor>& tensors,
                                                 std::uint64_t most) {
  std::vector<std::vector<StoredTensor>> shards;
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto more = static_cast<std::uint64_t>(TensorType{tensor.shape, tensor.dtype}.bytes());
    if (shards.empty() || bytes + more > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += more;
  }
  return shards;
}

}  // namespace

ExportedWeights export_weights(const StoredCheckpoint& checkpoint, const ExportOptions& options) {
  WeightExport all(checkpoint, options);
  all.result.file = all.bytes_of_file(all.tensors());
  all.result.bytes = all.result.file.size();
  return std::move(all.result);
}

ExportedWeights export_weight_shards(const StoredCheckpoint& checkpoint,
                                     const ExportOptions& options, const std::string& folder,
                                     std::uint64_t most, FileSystem& files) {
  WeightExport all(checkpoint, options);
  const std::vector<std::vector<StoredTensor>> shards = in_shards(all.tensors(), most);
  files.create_directory(folder);
  const auto numbered = [](std::size_t number) {
    const std::string digits = cat(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  JsonValue index = JsonValue::object();
  std::list<ReplacingFile> written;
  std::uint64_t size = 0;  // of tensors
  for (const std::vector<StoredTensor>& shard : shards) {
    const std::string name = cat("model-", numbered(written.size() + 1), "-of-",
                                 numbered(shards.size()), ".safetensors");
    const std::string bytes = all.bytes_of_file(shard);
    ReplacingFile& file = written.emplace_back(files, cat(folder, "/", name));
    file.append(std::as_bytes(std::span(bytes)));
    file.complete();
    all.result.bytes += bytes.size();
    for (const StoredTensor& tensor : shard) {
      index.set(tensor.name, name);
      size += static_cast<std::uint64_t>(TensorType{tensor.shape, tensor.dtype}.bytes());
    }
  }
  for (ReplacingFile& file : written) file.replace();
  const JsonValue json = JsonValue::object()
                             .set("metadata", JsonValue::object().set("total_size", size))
                             .set("weight_map", std::move(index));
  write_text_file(files, cat(folder, "/", kShardIndex), json.str(2) + "\n");
  all.result.shards = shards.size();
  return std::move(all.result);
}

namespace {

std::vector<std::string> names_of(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : manifest.tensors) names.push_back(name);
  return names;
}

WeightLayout layout_of(const TensorFiles& file, const ImportOptions& options) {
  if (options.layout) return *options.layout;
  const auto named = file.metadata().find(kLayout);
  if (named == file.metadata().end()) return WeightLayout::kBelfry;
  try {
    return find_weight_layout(named->second);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(about_option("layout", file.path(), ": its metadata: ", error.what(),
                                       "; name one (", the_option("layout"), ")"));
  }
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

// Throws unless the tensor may be imported.
void check_tensor(const TensorFiles& file, const StoredTensor& tensor, const CheckpointHead& like,
                  WeightLayout layout) {
  const auto& [name, dtype, shape, begin, end] = tensor;
  const auto found = like.manifest.tensors.find(name);
  require(found != like.manifest.tensors.end(), file.place_of(name), ": the checkpoint ",
          like.directory, " has no variable of this name",
          did_you_mean(name, names_of(like.manifest)));
  const Shape wanted = permuted(found->second.shape, axis_order(like.manifest, name, layout));
  const bool fits = widens(dtype, found->second.dtype);
  require(fits && shape == wanted, file.place_of(name), ": is ", TensorType{shape, dtype},
          ", but the checkpoint ", like.directory, ", in the layout ", name_of(layout), ", has ",
          TensorType{wanted, found->second.dtype},
          fits ? layout_hint(like.manifest, tensor, layout) : type_hint(found->second.dtype));
}

void check_whole(const TensorFiles& file, const CheckpointHead& like) {
  std::vector<std::string> there;
  for (const auto& [name, tensor] : file.tensors()) there.push_back(name);
  for (const auto& [name, entry] : like.manifest.tensors)
    require(entry.role != VariableRole::kWeight || file.tensors().contains(name), file.path(),
            ": has no tensor '", shown(name), "', which the checkpoint ", like.directory, " has",
            did_you_mean(name, there));
}

// New values of variables, made when they are saved.
using NewValues = std::map<std::string, std::function<std::vector<std::byte>()>>;

StoredVariable stored_variable(const std::string& name, const TensorType& type,
                               const std::function<std::vector<std::byte>()>& values) {
  return {.name = name,
          .description = cat("'", shown(name), "'"),
          .dtype = type.dtype,
          .shape = type.shape,
          .value = [type, values] {
            const std::vector<std::byte> bytes = values();
            Tensor tensor(type.shape, type.dtype);
            std::ranges::copy(bytes, tensor.mutable_raw());
            return tensor;
          }};
}

// The variables of a checkpoint with new values. Averages begin at new values of their weights, and
// what else has none stays as it is; notes both in `result`.
std::vector<StoredVariable> variables_like(const StoredCheckpoint& like, const NewValues& values,
                                           ImportedWeights& result) {
  std::vector<StoredVariable> all;
  for (const auto& [name, entry] : like.head.manifest.tensors) {
    auto found = values.find(name);
    if (found == values.end() && entry.role == VariableRole::kAverage) {
      found = values.find(entry.average_of);
      if (found != values.end()) result.begun.push_back(name);
    }
    if (found == values.end()) result.kept.push_back(name);
    const auto old = [&like, name] {
      const auto bytes = like.values(name);
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    all.push_back(stored_variable(name, {entry.shape, entry.dtype},
                                  found == values.end() ? old : found->second));
    all.back().device = entry.device;
    all.back().role = entry.role;
    all.back().trainable = entry.trainable;
  }
  return all;
}

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

namespace {

void save_at_path(const std::vector<StoredVariable>& variables, const Manifest& head,
                  bool is_replaced, const std::string& path, FileSystem& files) {
  const auto save_at = [&](const std::string& place) {
    save_variables(variables, head.step, head.extra, place, files);
  };
  if (is_replaced)
    replace(path, files, save_at);
  else
    save_at(path);
}

}  // namespace

ImportedWeights import_weights(const std::string& weights, const StoredCheckpoint& like,
                               const std::string& path, const ImportOptions& options,
                               FileSystem& files) {
  const bool is_replaced = replaces(path, options, files);
  const Manifest& manifest = like.head.manifest;
  const TensorFiles file(weights, files);
  ImportedWeights result{.tensors = file.tensors().size(), .layout = layout_of(file, options)};
  NewValues values;
  for (const auto& [name, stored] : file.tensors()) {
    const StoredTensor& tensor = stored;
    check_tensor(file, tensor, like.head, result.layout);
    const AxisOrder order = inverse(axis_order(manifest, name, result.layout));
    if (!order.empty()) result.permuted.push_back(name);
    const DType dtype = manifest.tensors.at(name).dtype;
    if (dtype != tensor.dtype) ++result.widened;
    values[name] = [&file, &tensor, dtype, order] {
      return permuted(converted(file.read(tensor.name), tensor.dtype, dtype), tensor.shape,
                      size_of(dtype), order);
    };
  }
  check_whole(file, like.head);
  const std::vector<StoredVariable> variables = variables_like(like, values, result);
  save_at_path(variables, manifest, is_replaced, path, files);
  return result;
}

ImportedWeights import_named_weights(const std::string& weights, const NameRules& rules,
                                     const StoredCheckpoint* like, const std::string& path,
                                     const ImportOptions& options, FileSystem& files) {
  const bool is_replaced = replaces(path, options, files);
  const TensorFiles file(weights, files);
  std::map<std::string, TensorType> model;
  if (like)
    for (const auto& [name, entry] : like->head.manifest.tensors)
      if (entry.role == VariableRole::kWeight) model[name] = {entry.shape, entry.dtype};
  const RenamedTensors renamed(source_in(file), rules,
                               {.model = like ? &model : nullptr, .partial = options.partial});
  ImportedWeights result{.tensors = file.tensors().size(),
                         .made = renamed.tensors().size(),
                         .left_out = renamed.left_out(),
                         .missing = renamed.missing(),
                         .unlike = renamed.unlike()};
  NewValues values;
  std::vector<StoredVariable> variables;
  for (const auto& [name, target] : renamed.tensors()) {
    values[name] = [&renamed, name] { return renamed.value(name); };
    variables.push_back(stored_variable(name, target.type, values[name]));
    variables.back().trainable = target.trained;
  }
  if (like) variables = variables_like(*like, values, result);
  require(!values.empty(), file.path(), ": no tensor of it becomes a weight by ", rules.name);
  Manifest head;
  if (like) head = like->head.manifest;
  note_needs(rules.needs, head.extra);
  save_at_path(variables, head, is_replaced, path, files);
  return result;
}

}  // namespace belfry
