// Answers of a trained model.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/core/model.h"

namespace belfry {

// An input of a model, as a field of its data: name, shape with kUnknown for the number of samples.
struct PredictorInput {
  std::string name;
  Shape shape;
  // By default f32, and i32 for what is one number per sample, as labels are.
  std::optional<DType> dtype = {};
};

// A model with the weights of a checkpoint, to be asked for its outputs. Nothing is trained: there
// is no dropout, and batch norm takes its moving averages. One thread at a time.
class Predictor {
 public:
  // `checkpoint` may be a run directory, of which the best checkpoint is taken, else the latest.
  // `inputs` are those of the model, in order. Throws as restore_checkpoint() does, and
  // InvalidArgument for inputs that the model does not take.
  Predictor(const std::string& checkpoint, const Model& model, std::vector<PredictorInput> inputs,
            DeviceSpec device = DeviceSpec::local("CPU", 0));
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // What Tower::output() called `output`, or a metric or node of the tower of this name, for these
  // samples: any number, the same in all feeds. Inputs that it does not depend on may be left out.
  // Throws NotFound, with the nearest name, for an output, and InvalidArgument for a feed, that the
  // model lacks.
  Tensor operator()(std::string_view output, const std::map<std::string, Tensor>& feeds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
