#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/checkpoint_variables_impl.h"
#include "belfry/framework/checkpoint/given_values.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/checkpoint/stored_checkpoint_impl.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

// Warns of values that are not finite, so that nobody continues training from them unawares.
void warn_of_values(const std::string& directory, std::span<const Safetensors> contents,
                    const Manifest& manifest) {
  std::vector<std::string> bad;
  for (const Safetensors& content : contents)
    for (const auto& [name, tensor] : content.tensors()) {
      const Manifest::Entry& entry = manifest.tensors.at(name);
      const auto found = may_be_infinite(entry.role, entry.trainable)
                             ? find_nan(tensor.dtype, content.values(tensor))
                             : find_not_finite(tensor.dtype, content.values(tensor));
      if (found) bad.push_back(cat("'", shown(name), "' (", *found, ")"));
    }
  if (bad.empty()) return;
  log_warning("the checkpoint ", directory, " has values that are not finite: ", bad[0],
              bad.size() > 1 ? cat(" and ", bad.size() - 1, " more") : "");
}

// Finds where the value of each original is, and what is left out. Throws unless the checkpoint has
// each variable of the graph, except optional ones.
using Sources = std::map<const Node*, std::pair<const Safetensors*, const StoredTensor*>>;
Sources find_sources(const Graph& graph, const std::string& directory,
                     std::span<const Safetensors> contents, const RestoreOptions& options,
                     std::vector<std::string>& left_out) {
  const CheckpointVariables variables = stored_variables(graph);
  std::set<std::string> stored(options.optional.begin(), options.optional.end());
  Sources sources;
  for (const Safetensors& content : contents)
    for (const auto& [name, tensor] : content.tensors()) {
      const bool is_optional = !stored.insert(name).second;
      const auto found = variables.find(name);
      if (found != variables.end()) {
        sources[&found->second.node()] = {&content, &tensor};
        continue;
      }
      require(is_optional || !options.strict, content.file(), ": tensor '", shown(name),
              "' at byte ", tensor.begin, ": the graph has no variable of this name",
              did_you_mean(name, tensor_keys(variables)));
      if (!is_optional) left_out.push_back(name);
    }
  for (const auto& [name, variable] : variables)
    if (!stored.contains(name))
      throw InvalidArgument(cat(variable.node().describe(), ": the checkpoint ", directory,
                                " has no tensor '", name, "'",
                                did_you_mean(name, {stored.begin(), stored.end()})));
  std::ranges::sort(left_out);
  return sources;
}

TensorType type_of_whole(Variable variable) { return {variable.whole_shape(), variable.dtype()}; }

// The value of each variable and each copy of it.
std::vector<VariableBytes> match(const Graph& graph, const Sources& sources) {
  std::vector<VariableBytes> values;
  for (std::size_t id = 0; id < graph.size(); ++id) {
    Node& node = graph.node(id);
    if (!node.is_variable()) continue;
    const auto source = sources.find(&original_of(node));
    if (source == sources.end()) continue;
    const auto [content, tensor] = source->second;
    const Variable variable(node);
    const TensorType type{tensor->shape, tensor->dtype}, own = type_of_whole(variable);
    require(own == type, node.describe(), ": is ", own, ", but ", content->file(), " has ", type,
            " at byte ", tensor->begin);
    values.push_back({variable, content->values(*tensor)});
  }
  return values;
}

// Where the chosen values of the weights are. Adds to the lists the weights that the checkpoint
// lacks, and those that the graph lacks.
Sources find_weights(const Graph& graph, const Manifest& manifest, const ChosenWeights& chosen,
                     std::span<const Safetensors, 2> contents, LoadedWeights& lists) {
  Sources sources;
  const VariableRoles roles(graph);
  std::set<std::string, std::less<>> wanted;
  for (const auto& [name, variable] : stored_variables(graph)) {
    if (roles.of(variable.node()) != VariableRole::kWeight) continue;
    wanted.insert(name);
    const auto found = chosen.tensors.find(name);
    if (found == chosen.tensors.end()) {
      lists.initial.push_back(name);
      continue;
    }
    const bool of_model = manifest.tensors.at(found->second).file == kModelFile;
    const Safetensors& content = contents[of_model ? 0 : 1];
    const auto tensor = content.tensors().find(found->second);
    require<IoError>(tensor != content.tensors().end(), content.file(), ": has no tensor '",
                     shown(found->second),
                     "', which the manifest lists for a file of another name");
    sources[&variable.node()] = {&content, &tensor->second};
  }
  for (const auto& [name, tensor] : chosen.tensors)
    if (!wanted.contains(name)) lists.left_out.push_back(name);
  return sources;
}

// Removes the tensors that have another shape or type in the graph.
std::vector<std::string> take_out_unlike(Sources& sources) {
  std::vector<std::string> unlike;
  std::erase_if(sources, [&](const auto& source) {
    const StoredTensor& tensor = *source.second.second;
    const Variable variable(const_cast<Node&>(*source.first));
    const TensorType stored{tensor.shape, tensor.dtype}, now = type_of_whole(variable);
    if (stored == now) return false;
    unlike.push_back(cat(variable.logical_name(), " (", stored, " there, ", now, " here)"));
    return true;
  });
  std::ranges::sort(unlike);
  return unlike;
}

CheckpointInfo info_of(const std::string& directory, const Manifest& manifest) {
  return {.path = directory, .step = manifest.step, .extra = manifest.extra};
}

CheckpointInfo restore_once(Session& session, const std::string& path, FileSystem& files,
                            const RestoreOptions& options) {
  const std::string directory = find_checkpoint(files, path);
  const Manifest manifest = read_manifest(files, directory);
  const Safetensors contents[] = {read_tensors(files, directory, kModelFile, manifest),
                                  read_tensors(files, directory, kStateFile, manifest)};
  CheckpointInfo info = info_of(directory, manifest);
  const Sources sources =
      find_sources(session.graph(), directory, contents, options, info.left_out);
  session.restore(match(session.graph(), sources), manifest.step);
  warn_of_values(directory, contents, manifest);
  log_info("restored the checkpoint ", directory, " (step ", manifest.shown_step(), ")");
  if (!info.left_out.empty())
    log_info("left out ", info.left_out.size(),
             " tensors that the graph has no variables for: ", some_names(info.left_out));
  return info;
}

}  // namespace

CheckpointInfo restore_checkpoint(Session& session, const std::string& path, FileSystem& files,
                                  const RestoreOptions& options) {
  return read_settled(files, path, [&] { return restore_once(session, path, files, options); });
}

namespace {

// A checkpoint in memory, and which of its values the weights will get.
struct ReadWeights {
  std::string directory;
  Manifest manifest;
  Safetensors contents[2];
  ChosenWeights chosen;
};

ReadWeights read_chosen_weights(FileSystem& files, const std::string& path, WeightChoice choice,
                                std::string_view option) {
  const std::string directory = find_checkpoint(files, path);
  Manifest manifest = read_manifest(files, directory);
  ChosenWeights chosen = choose_weights(manifest, choice, directory, option);
  Safetensors model = read_tensors(files, directory, kModelFile, manifest);
  Safetensors state = read_tensors(files, directory, kStateFile, manifest);
  return {directory, std::move(manifest), {std::move(model), std::move(state)}, std::move(chosen)};
}

// "; the graph has fc0/W, fc0/b".
std::string names_text_of(const char* who, const std::vector<std::string>& names) {
  return names.empty() ? "" : cat("; ", who, " ", some_names(names));
}

}  // namespace

LoadedWeights load_weights(Session& session, const std::string& path, WeightChoice choice,
                           FileSystem& files) {
  return read_settled(files, path, [&] {
    const ReadWeights read = read_chosen_weights(files, path, choice, "load_weights");
    LoadedWeights loaded{.values = read.chosen.values};
    Sources sources =
        find_weights(session.graph(), read.manifest, read.chosen, read.contents, loaded);
    loaded.unlike = take_out_unlike(sources);
    for (const auto& [node, source] : sources) loaded.taken.emplace_back(node->logical_name());
    std::ranges::sort(loaded.taken);
    require(!loaded.taken.empty(), "no weight of the checkpoint ", read.directory,
            " fits this model", names_text_of("it has", loaded.left_out),
            names_text_of("the model has", loaded.initial),
            names_text_of("unlike are", loaded.unlike));
    session.restore(match(session.graph(), sources), session.step());
    warn_of_values(read.directory, read.contents, read.manifest);
    return loaded;
  });
}

namespace {

// The weights that a checkpoint keeps, by name.
CheckpointVariables stored_weights(const Graph& graph) {
  CheckpointVariables weights = stored_variables(graph);
  const VariableRoles roles(graph);
  std::erase_if(weights, [&](const auto& weight) {
    return roles.of(weight.second.node()) != VariableRole::kWeight;
  });
  return weights;
}

// Each original with itself and its copies.
std::map<const Node*, std::vector<Variable>> with_copies(const Graph& graph) {
  std::map<const Node*, std::vector<Variable>> all;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (Node& node = graph.node(id); node.is_variable())
      all[&original_of(node)].push_back(Variable(node));
  return all;
}

}  // namespace

std::map<std::string, TensorType> weight_types(const Graph& graph) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, variable] : stored_weights(graph))
    types.emplace(name, type_of_whole(variable));
  return types;
}

LoadedWeights load_weights(Session& session, const GivenWeights& given) {
  LoadedWeights loaded;
  const CheckpointVariables weights = stored_weights(session.graph());
  const auto variables = with_copies(session.graph());
  for (const auto& [name, type] : given.types)
    if (!weights.contains(name)) loaded.left_out.push_back(name);
  for (const auto& [name, variable] : weights) {
    const auto found = given.types.find(name);
    const TensorType own = type_of_whole(variable);
    if (found == given.types.end()) {
      loaded.initial.push_back(name);
      continue;
    }
    if (found->second != own) {
      loaded.unlike.push_back(cat(name, " (", found->second, " there, ", own, " here)"));
      continue;
    }
    const std::vector<std::byte> value = given.value(name);
    std::vector<VariableBytes> values;
    for (const Variable& copy : variables.at(&variable.node())) values.push_back({copy, value});
    session.restore(values, session.step());
    loaded.taken.push_back(name);
  }
  return loaded;
}

void restore_weights(Session& session, const std::string& path, WeightChoice choice,
                     FileSystem& files) {
  read_settled(files, path, [&] {
    const ReadWeights read = read_chosen_weights(files, path, choice, "weights");
    LoadedWeights lists;
    const Sources sources =
        find_weights(session.graph(), read.manifest, read.chosen, read.contents, lists);
    for (const std::string& name : lists.initial)
      throw InvalidArgument(cat(stored_variables(session.graph()).at(name).node().describe(),
                                ": the checkpoint ", read.directory, " has no weight '", name, "'",
                                did_you_mean(name, lists.left_out)));
    session.restore(match(session.graph(), sources), session.step());
    warn_of_values(read.directory, read.contents, read.manifest);
    log_info("took the ", read.chosen.what(), " of the checkpoint ", read.directory, " (step ",
             read.manifest.shown_step(), ")");
    if (!lists.left_out.empty())
      log_info("left out ", lists.left_out.size(),
               " weights that the graph has no variables for: ", some_names(lists.left_out));
    return true;
  });
}

CheckpointInfo inspect_checkpoint(const std::string& path, FileSystem& files) {
  return read_settled(files, path, [&] {
    const std::string directory = find_checkpoint(files, path);
    return info_of(directory, read_manifest(files, directory));
  });
}

}  // namespace belfry
