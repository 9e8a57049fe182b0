// Computes outputs of a trained model.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/core/model.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {

// An input of a model, as a field of its data: its shape has kUnknownSize for the number of
// samples.
struct PredictorInput {
  std::string name;
  Shape shape;
  // By default f32; i32 if there is one number per sample, such as a label.
  std::optional<DType> dtype = {};
  DType type() const { return dtype.value_or(shape.rank() == 1 ? DType::kI32 : DType::kF32); }
};

struct PredictorOptions {
  DeviceSpec device = DeviceSpec::local("CPU", 0);
  // The default is the weights that were validated: moving averages, if the training kept some.
  WeightChoice weights = WeightChoice::kValidated;
  // For a run directory: by default the best one, or the latest if the run had no metric for the
  // best.
  std::optional<CheckpointChoice> checkpoint = {};
};

// A model with the weights of a checkpoint, which computes outputs. It does not train: there is no
// dropout, and batch norm uses its moving averages. Several threads may call one; each call waits
// for earlier ones.
class Predictor {
 public:
  // `path`: a checkpoint or a run directory. `inputs` are those of the model, in order. Throws as
  // checkpoint_at() and restore_weights() do, and InvalidArgument for inputs that the model does
  // not take.
  Predictor(const std::string& path, const ModelFunction& model, std::vector<PredictorInput> inputs,
            const PredictorOptions& options = {});
  // Opens a plan, which has the graph and the weights: a file of `belfry checkpoint export PATH OUT
  // --format=plan`. Throws as read_graph() does (graph_file.h), and InvalidArgument for a file that
  // has no weights.
  static Predictor open(const std::string& file,
                        const DeviceSpec& device = DeviceSpec::local("CPU", 0));
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // Computes, for these samples, what Tower::output() called `output`, or a metric or node of the
  // tower of this name; a plan has only the former. All feeds must have the same number of samples.
  // Inputs that the output does not depend on may be left out. If the model lacks the output, it
  // throws NotFoundError with the nearest name; if it lacks a feed, InvalidArgument.
  Tensor operator()(std::string_view output, const std::map<std::string, Tensor>& feeds);

  // What it takes, and the names of outputs that it computes.
  const std::vector<PredictorInput>& inputs() const;
  std::vector<std::string> outputs() const;

 private:
  struct State;
  explicit Predictor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The file (graph_file.h) of the graph by which a model predicts the outputs that it names, without
// weights; none if it names no output. Throws what the model throws, and as write_graph() does.
std::optional<std::string> predicting_graph_file(const ModelFunction& model,
                                                 const std::vector<PredictorInput>& inputs);

}  // namespace belfry
