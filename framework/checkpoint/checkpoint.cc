#include "belfry/framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/checkpoint_variables_impl.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/checkpoint/stored_checkpoint_impl.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

// A variable to be stored, wherever its value comes from.
struct StoredVariable {
  std::string name, description, device;
  DType dtype;
  Shape shape;
  VariableRole role;
  bool trainable;
  std::function<Tensor()> value;
};

// A variable that is called an average, but has no weight like it, is state.
VariableRole stored_role(const CheckpointVariables& all, Variable variable,
                         const VariableRoles& roles) {
  const VariableRole role = roles.of(variable.node());
  if (role != VariableRole::kAverage) return role;
  const auto weight = all.find(name_of_averaged(variable.logical_name()));
  const bool fits = weight != all.end() &&
                    roles.of(weight->second.node()) == VariableRole::kWeight &&
                    weight->second.dtype() == variable.dtype() &&
                    weight->second.whole_shape() == variable.whole_shape();
  return fits ? role : VariableRole::kState;
}

// The weights, or all else.
std::vector<StoredVariable> stored(Session& session, bool weights) {
  std::vector<StoredVariable> result;
  const VariableRoles roles(session.graph());
  const CheckpointVariables all = stored_variables(session.graph());
  for (const auto& [name, variable] : all) {
    const VariableRole role = stored_role(all, variable, roles);
    if ((role == VariableRole::kWeight) != weights) continue;
    result.push_back({.name = name,
                      .description = variable.describe(),
                      .device = session.placement(variable.ref()).str(),
                      .dtype = variable.dtype(),
                      .shape = variable.whole_shape(),
                      .role = role,
                      .trainable = variable.trainable(),
                      .value = [&session, variable = variable] { return session.read(variable); }});
  }
  return result;
}

// Writes a file, and keeps the count and the checksum of its bytes.
class SummedFile {
 public:
  explicit SummedFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  void append(std::span<const std::byte> bytes) {
    file_->append(bytes);
    note_progress();
    sum_.bytes += bytes.size();
    sum_.crc32 = crc32_of(bytes, sum_.crc32);
  }
  Manifest::File finish() {
    file_->sync();
    file_->close();
    return sum_;
  }

 private:
  std::unique_ptr<WritableFile> file_;
  Manifest::File sum_;
};

// A variable with a value that is not finite.
struct BadVariable {
  std::string name, description;
  NotFinite value;
  std::string str() const { return cat(description, " has ", value); }
};

// Writes `variables` to one file, one at a time, and adds them to the manifest. Returns the
// variables with values that are not finite.
std::vector<BadVariable> write_tensors(CheckpointFolder& folder, const std::string& name,
                                       std::span<const StoredVariable> variables,
                                       Manifest& manifest) {
  std::vector<BadVariable> bad;
  std::vector<StoredTensor> tensors;
  std::map<std::string_view, const StoredVariable*> by_name;
  for (const StoredVariable& variable : variables) {
    tensors.push_back({.name = variable.name, .dtype = variable.dtype, .shape = variable.shape});
    by_name[variable.name] = &variable;
  }
  const std::string head = lay_out_safetensors(tensors, kFileMetadata);
  SummedFile file(folder.create(name));
  file.append(std::as_bytes(std::span(head)));
  for (const StoredTensor& tensor : tensors) {
    const StoredVariable& variable = *by_name.at(tensor.name);
    const Tensor value = variable.value();
    const std::span<const std::byte> bytes(value.raw(), value.bytes());
    file.append(bytes);
    if (const auto found = find_not_finite(tensor.dtype, bytes))
      bad.push_back({variable.name, variable.description, *found});
    manifest.tensors[tensor.name] = {.file = name,
                                     .dtype = tensor.dtype,
                                     .shape = tensor.shape,
                                     .device = variable.device,
                                     .crc32 = crc32_of(bytes),
                                     .role = variable.role,
                                     .trainable = variable.trainable};
    if (variable.role == VariableRole::kAverage)
      manifest.tensors[tensor.name].average_of = name_of_averaged(variable.name);
  }
  manifest.files[name] = file.finish();
  return bad;
}

// The first of these variables whose values in the checkpoint in `directory` are finite, or null.
// If that cannot be read, it is the first of all.
const BadVariable* first_loss(FileSystem& files, const std::string& directory,
                              std::span<const BadVariable> variables) try {
  const Manifest manifest = read_manifest(files, directory);
  std::set<std::string, std::less<>> bad;
  for (const char* name : {kModelFile, kStateFile}) {
    const Safetensors content = read_tensors(files, directory, name, manifest);
    for (const auto& [key, tensor] : content.tensors())
      if (find_not_finite(tensor.dtype, content.values(tensor))) bad.insert(key);
  }
  const auto lost = std::ranges::find_if(
      variables, [&](const BadVariable& one) { return !bad.contains(one.name); });
  return lost == variables.end() ? nullptr : &*lost;
} catch (const IoError&) {
  return &variables[0];
}

// Throws if a new checkpoint with these values that are not finite would replace finite ones at
// `path`.
void require_no_loss(FileSystem& files, const CheckpointFolder& folder,
                     std::span<const BadVariable> variables) {
  if (variables.empty()) return;
  if (!folder.replaces()) {
    log_warning(variables[0], "; the checkpoint ", folder.path(), " is saved with it");
    return;
  }
  const std::string old = find_checkpoint(files, folder.path()).directory;
  if (const BadVariable* const lost = first_loss(files, old, variables))
    throw NotFiniteError(cat(*lost, ", so nothing was saved, and the checkpoint ", old,
                             " was kept; save to another path to keep the present values, too"));
}

// How the variables of a checkpoint differ from those of the graph; "" if they do not.
std::string how_different(const Manifest& manifest, const CheckpointVariables& variables,
                          std::span<const std::string> optional) {
  const auto is_optional = [&](const std::string& name) {
    return std::ranges::find(optional, name) != optional.end();
  };
  for (const auto& [name, entry] : manifest.tensors) {
    const auto found = variables.find(name);
    if (found == variables.end() && is_optional(name)) continue;
    const TensorType stored{entry.shape, entry.dtype};
    if (found == variables.end())
      return cat("it has '", shown(name), "', ", stored, ", which this graph lacks");
    const TensorType now{found->second.whole_shape(), found->second.dtype()};
    if (now != stored)
      return cat("its '", shown(name), "' is ", stored, ", that of this graph is ", now);
  }
  for (const auto& [name, variable] : variables)
    if (!manifest.tensors.contains(name) && !is_optional(name))
      return cat("it lacks '", name, "', which this graph has");
  return "";
}

// Throws if the folder replaces a checkpoint of other variables than those of the graph.
void require_same_variables(const Graph& graph, const CheckpointFolder& folder, FileSystem& files,
                            const SaveOptions& options) {
  if (options.overwrite || !folder.replaces()) return;
  constexpr char kAdvice[] =
      "; nothing was changed: save elsewhere, or ask for it to be overwritten (the option "
      "overwrite)";
  const std::string directory = find_checkpoint(files, folder.path()).directory;
  std::string different;
  try {
    different =
        how_different(read_manifest(files, directory), stored_variables(graph), options.optional);
  } catch (const IoError& error) {
    throw IoError(cat("the checkpoint at ", directory,
                      " cannot be told from another model's: ", error.what(), kAdvice));
  }
  require(different.empty(), directory, " holds a checkpoint of another model: ", different,
          kAdvice);
}

void require_intact(const Session& session, const std::string& path) {
  require(session.intact(),
          "a run failed after it had begun to write variables, so their values "
          "are not those of any step; restore the session before saving it to ",
          path);
}

// Writes `weights` and `state` to `path`. `head` has the step and what the caller adds.
std::string write_checkpoint(const Graph& graph, Manifest head,
                             std::span<const StoredVariable> weights,
                             std::span<const StoredVariable> state, const std::string& path,
                             FileSystem& files, const SaveOptions& options,
                             const std::function<void()>& check_source) {
  CheckpointFolder folder(files, path, options.patience_seconds);
  require_same_variables(graph, folder, files, options);
  folder.remove_stale();
  std::vector<BadVariable> bad = write_tensors(folder, kModelFile, weights, head);
  std::ranges::move(write_tensors(folder, kStateFile, state, head), std::back_inserter(bad));
  require<NotFiniteError>(bad.empty() || !options.refuse_not_finite,
                          bad.empty() ? "" : bad[0].str(), ", so nothing was saved");
  require_no_loss(files, folder, bad);
  check_source();
  const std::string text = head.str();
  require(text.size() <= kMostJsonBytes, "the manifest of the checkpoint ", path, " would have ",
          text.size(), " bytes, more than the ", kMostJsonBytes,
          " that a restore reads; use fewer variables, shorter names or less of what is added");
  SummedFile file(folder.create(kManifestFile));
  file.append(std::as_bytes(std::span(text)));
  file.finish();
  folder.commit(options.keep_old);
  return text;
}

}  // namespace

void check_checkpoint_path(const std::string& path, FileSystem& files) {
  CheckpointFolder(files, path, SaveOptions().patience_seconds).rehearse();
}

void check_checkpoint_path(const Graph& graph, const std::string& path, const SaveOptions& options,
                           FileSystem& files) {
  CheckpointFolder folder(files, path, options.patience_seconds);
  require_same_variables(graph, folder, files, options);
  folder.rehearse();
}

std::string save_checkpoint(Session& session, const std::string& path, const JsonValue& extra,
                            FileSystem& files, const SaveOptions& options) {
  require(extra.kind() == JsonValue::Kind::kObject,
          "what is added to a checkpoint must be a JSON object");
  require_intact(session, path);
  const std::uint64_t step = session.step();
  return write_checkpoint(session.graph(), {.step = step, .extra = extra}, stored(session, true),
                          stored(session, false), path, files, options, [&] {
                            require(session.intact() && session.step() == step,
                                    "the session was run while it was being saved to ", path,
                                    "; save between steps");
                          });
}

CheckpointSnapshot::CheckpointSnapshot(Session& session, const JsonValue& extra) {
  require(extra.kind() == JsonValue::Kind::kObject,
          "what is added to a checkpoint must be a JSON object");
  require_intact(session, "a checkpoint");
  std::vector<StoredVariable> weights = stored(session, true), state = stored(session, false);
  for (auto* const variables : {&weights, &state})
    for (StoredVariable& variable : *variables)
      variable.value = [value = variable.value()] { return value; };
  save_ = [&graph = session.graph(), head = Manifest{.step = session.step(), .extra = extra},
           weights = std::move(weights), state = std::move(state)](
              const std::string& path, FileSystem& files, const SaveOptions& options) {
    return write_checkpoint(graph, head, weights, state, path, files, options, [] {});
  };
}

std::string CheckpointSnapshot::save(const std::string& path, FileSystem& files,
                                     const SaveOptions& options) const {
  return save_(path, files, options);
}

bool settle_checkpoint(const std::string& path, const std::string& manifest, bool keep_new,
                       FileSystem& files) {
  CheckpointFolder folder(files, path, SaveOptions().patience_seconds);
  const std::vector<std::byte> now = manifest_bytes(files, path);
  if (!std::ranges::equal(now, std::as_bytes(std::span(manifest)))) return false;
  return folder.settle(keep_new);
}

}  // namespace belfry
