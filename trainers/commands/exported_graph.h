// The graph by which a run predicts, with the weights of one of its checkpoints: what formats of
// `belfry checkpoint export` are made of that hold a model, not its weights alone.
#pragma once
#include <map>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/graph_file.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/framework/checkpoint/weight_choice.h"

namespace belfry {

struct ExportedGraph {
  GraphInFile file;
  ChosenWeights chosen;
  std::map<std::string, std::span<const std::byte>> weights;  // in the checkpoint, by name
};

// Reads the graph from the directory of the run that has the checkpoint, which must outlive the
// result. Throws NotFoundError if there is none, InvalidArgument if the graph has a variable that
// the checkpoint lacks or has in another shape, and as read_graph() and choose_weights() do.
ExportedGraph graph_of_checkpoint(const StoredCheckpoint& checkpoint, WeightChoice weights,
                                  FileSystem& files = local_file_system());

}  // namespace belfry
