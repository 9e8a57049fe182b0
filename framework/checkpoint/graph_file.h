// A graph that predicts, as a file: in a run directory the model's graph, and in a plan of `belfry
// checkpoint export` the same graph with its weights. It is a safetensors file, whose metadata have
//   "format": "belfry graph", "version": "1", "crc32": of the graph and the values,
//   "graph": {"seed": 1, "prefix": "tower-pred-0/", "replica": 0,
//             "nodes": [{"op": "MatMul", "name": "tower-pred-0/fc/MatMul", "options":
//             [false,false],
//                        "inputs": [[0,0],[3,0]]}, ...],
//             "inputs": [0], "outputs": {"logits": [7,0]}}
// Nodes are numbered in their order, and come after their inputs; options are described in
// framework/graph/stored_options.h. Placeholders and variables have "dtype" and "shape" instead.
// The tensors are the values of constants, by the names of their nodes, and of variables.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// What a graph predicts from what.
struct PredictingGraph {
  std::vector<Output> inputs;                           // placeholders
  std::vector<std::pair<std::string, Output>> outputs;  // by name
};

// The nodes that the outputs depend on, in the order of the graph.
std::vector<const Node*> nodes_of(const PredictingGraph& graph);

// The file of these nodes. `weights`: the value of each variable among them, by its logical name;
// without any the file has the graph alone. Throws InvalidArgument, naming the node, for one that
// writes variables or waits for other nodes, and for a variable that `weights` lack.
std::string write_graph(const PredictingGraph& graph,
                        const std::map<std::string, std::span<const std::byte>>& weights = {});

// The graph of a file, with a variable for each of the file's.
struct GraphInFile {
  std::unique_ptr<Graph> graph;
  PredictingGraph ends;
  std::vector<VariableBytes> weights;  // in the file; none if that has the graph alone
};

// `device`: where it computes; empty: where the placer puts it. Throws IoError, naming the file, if
// that is damaged, holds no graph, or is of another version. Throws InvalidArgument, naming the
// node, for an op that this program lacks, or whose options cannot be read.
GraphInFile read_graph(const Safetensors& file, const DeviceSpec& device = {});

}  // namespace belfry
