#include "belfry/trainers/commands/exported_graph.h"

#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/util/run_files.h"

namespace belfry {
namespace {

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();  // of constants

void require_weights_of(const ExportedGraph& graph, const StoredCheckpoint& checkpoint) {
  for (const Variable variable : graph.file.graph->variables()) {
    const std::string name(variable.logical_name());
    const auto found = graph.chosen.tensors.find(name);
    require(found != graph.chosen.tensors.end(), "the checkpoint ", checkpoint.head.directory,
            " has no weight '", shown(name), "', which the graph of the run needs");
    const Manifest::Entry& entry = checkpoint.head.manifest.tensors.at(found->second);
    const TensorType stored{entry.shape, entry.dtype}, own = variable.node().output_type(0);
    require(stored == own, "the checkpoint ", checkpoint.head.directory, " has '", shown(name),
            "' as ", stored, ", but in the graph of the run it is ", own);
  }
}

}  // namespace

ExportedGraph graph_of_checkpoint(const StoredCheckpoint& checkpoint, WeightChoice weights,
                                  FileSystem& files) {
  const std::string& directory = checkpoint.head.directory;
  const std::string run = run_of(directory, files);
  require<NotFoundError>(!run.empty(), directory,
                         " lies in no run directory, where the graph of the run would be; name a "
                         "run, or a checkpoint in one");
  const std::string path = cat(run, "/", kGraphFile);
  require<NotFoundError>(
      files.target_kind(path) == FileKind::kFile, "there is no ", path,
      ", the graph of the run: its model names no output (Tower::output), or it cannot predict, as "
      "a warning of the run says, or an older version has trained it; a run that resumes writes "
      "the graph");
  ExportedGraph result{
      .file = read_graph(Safetensors(read_large_file(files, path, kMostBytes), path)),
      .chosen = choose_weights(checkpoint.head.manifest, weights, directory),
      .weights = {}};
  require_weights_of(result, checkpoint);
  for (const auto& [name, from] : result.chosen.tensors)
    result.weights.emplace(name, checkpoint.values(from));
  return result;
}

}  // namespace belfry
