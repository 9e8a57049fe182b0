#include "belfry/framework/checkpoint/checkpoint.h"

#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/profiler_range.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/checkpoint_variables_impl.h"
#include "belfry/framework/checkpoint/given_values.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/checkpoint/stored_checkpoint_impl.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

// A variable that is called an average, but has no matching weight, is state.
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

Tensor read_into(SnapshotMemory& kept, Session& session, Variable variable) {
  Tensor& copy = kept[std::string(variable.logical_name())];
  if (copy.shape() != variable.whole_shape() || copy.dtype() != variable.dtype())
    copy = Tensor(variable.whole_shape(), variable.dtype());
  session.look_at(variable, [&](std::span<const std::byte> bytes) {
    std::memcpy(copy.mutable_raw(), bytes.data(), bytes.size());
  });
  return copy;
}

// The weights, or everything else. `kept`: as for CheckpointSnapshot.
std::vector<StoredVariable> stored(Session& session, bool weights, SnapshotMemory* kept = nullptr) {
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
                      .value = [&session, kept, variable = variable] {
                        return kept ? read_into(*kept, session, variable) : session.read(variable);
                      }});
  }
  return result;
}

// Writes a file, and keeps a running count and checksum of its bytes.
class SummedFile {
 public:
  explicit SummedFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  // Returns the CRC-32 of these bytes.
  std::uint32_t append(std::span<const std::byte> bytes) {
    file_->append(bytes);
    note_progress();
    const std::uint32_t crc = crc32_of(bytes);
    sum_.crc32 = joined_crc32(sum_.crc32, crc, bytes.size());
    sum_.bytes += bytes.size();
    return crc;
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

// Writes `variables` to one file, one at a time, and adds them to the manifest. Returns the
// first one with a value that is not finite, and the value; "" for none.
std::string write_tensors(CheckpointFolder& folder, const std::string& name,
                          std::span<const StoredVariable> variables, Manifest& manifest) {
  std::string bad;
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
    const std::uint32_t crc = file.append(bytes);
    const auto found = may_be_infinite(variable.role, variable.trainable)
                           ? find_nan(tensor.dtype, bytes)
                           : find_not_finite(tensor.dtype, bytes);
    if (found && bad.empty()) bad = cat(variable.description, " has ", *found);
    manifest.tensors[tensor.name] = {.file = name,
                                     .dtype = tensor.dtype,
                                     .shape = tensor.shape,
                                     .device = variable.device,
                                     .crc32 = crc,
                                     .role = variable.role,
                                     .trainable = variable.trainable};
    if (variable.role == VariableRole::kAverage)
      manifest.tensors[tensor.name].average_of = name_of_averaged(variable.name);
  }
  manifest.files[name] = file.finish();
  return bad;
}

void require_intact(const Session& session, const std::string& path) {
  require(session.intact(),
          "a run failed after it had begun to write variables, or they await a restore, so their "
          "values are not those of any step; restore the session before saving it to ",
          path);
}

// Writes `weights` and `state` to `path`. `head` has the step and the caller's additions.
void write_checkpoint(Manifest head, std::span<const StoredVariable> weights,
                      std::span<const StoredVariable> state, const std::string& path,
                      FileSystem& files, const SaveOptions& options,
                      const std::function<void()>& check_source) {
  static const RangeName kWriteCheckpoint("write checkpoint");
  const ProfilerRange range(kWriteCheckpoint);
  CheckpointFolder folder(files, path);
  std::string bad = write_tensors(folder, kModelFile, weights, head);
  const std::string bad_state = write_tensors(folder, kStateFile, state, head);
  if (bad.empty()) bad = bad_state;
  require<NotFiniteError>(bad.empty() || !options.refuse_not_finite, bad, ", so nothing was saved");
  check_source();
  const std::string text = head.str();
  require(text.size() <= kMostJsonBytes, "the manifest of the checkpoint ", path, " would have ",
          text.size(), " bytes, more than the ", kMostJsonBytes,
          " that a restore reads; use fewer variables, shorter names or less of what is added");
  SummedFile file(folder.create(kManifestFile));
  file.append(std::as_bytes(std::span(text)));
  file.finish();
  folder.commit();
  if (!bad.empty()) log_warning(bad, "; the checkpoint ", folder.path(), " is saved with it");
}

}  // namespace

void save_checkpoint(Session& session, const std::string& path, const JsonValue& extra,
                     FileSystem& files, const SaveOptions& options) {
  require(extra.kind() == JsonValue::Kind::kObject,
          "what is added to a checkpoint must be a JSON object");
  require_intact(session, path);
  const std::uint64_t step = session.step();
  write_checkpoint({.step = step, .extra = extra}, stored(session, true), stored(session, false),
                   path, files, options, [&] {
                     require(session.intact() && session.step() == step,
                             "the session was run while it was being saved to ", path,
                             "; save between steps");
                   });
}

void save_variables(std::span<const StoredVariable> variables, std::uint64_t step,
                    const JsonValue& extra, const std::string& path, FileSystem& files) {
  std::vector<StoredVariable> weights, state;
  for (const StoredVariable& variable : variables)
    (variable.role == VariableRole::kWeight ? weights : state).push_back(variable);
  write_checkpoint({.step = step, .extra = extra}, weights, state, path, files, {}, [] {});
}

CheckpointSnapshot::CheckpointSnapshot(Session& session, const JsonValue& extra,
                                       SnapshotMemory* kept) {
  static const RangeName kCopyVariables("copy variables");
  const ProfilerRange range(kCopyVariables);
  require(extra.kind() == JsonValue::Kind::kObject,
          "what is added to a checkpoint must be a JSON object");
  require_intact(session, "a checkpoint");
  std::vector<StoredVariable> weights = stored(session, true, kept),
                              state = stored(session, false, kept);
  for (auto* const variables : {&weights, &state})
    for (StoredVariable& variable : *variables)
      variable.value = [value = variable.value()] { return value; };
  save_ = [head = Manifest{.step = session.step(), .extra = extra}, weights = std::move(weights),
           state = std::move(state)](const std::string& path, FileSystem& files,
                                     const SaveOptions& options) {
    write_checkpoint(head, weights, state, path, files, options, [] {});
  };
}

void CheckpointSnapshot::save(const std::string& path, FileSystem& files,
                              const SaveOptions& options) const {
  save_(path, files, options);
}

}  // namespace belfry
