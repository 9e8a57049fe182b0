// Asks a trained model for its outputs.
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

// An input of a model, as a field of its data: its shape has kUnknownSize for the number of
// samples.
struct PredictorInput {
  std::string name;
  Shape shape;
  // By default f32; i32 if there is one number per sample, such as a label.
  std::optional<DType> dtype = {};
};

// A model with the weights of a checkpoint, to be asked for outputs. It trains nothing: there is no
// dropout, and batch norm takes its moving averages. One thread at a time.
class Predictor {
 public:
  // `checkpoint` may be a run directory: then it takes the best checkpoint, else the latest.
  // `inputs` are those of the model, in order. Throws as restore_checkpoint() does, and
  // InvalidArgument for inputs that the model does not take.
  Predictor(const std::string& checkpoint, const ModelFunction& model,
            std::vector<PredictorInput> inputs, DeviceSpec device = DeviceSpec::local("CPU", 0));
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // Computes, for these samples, what Tower::output() called `output`, or a metric or node of the
  // tower of this name. All feeds have one number of samples, any. Inputs that the output does not
  // depend on may be left out. If the model lacks the output, it throws NotFoundError with the
  // nearest name; if it lacks a feed, InvalidArgument.
  Tensor operator()(std::string_view output, const std::map<std::string, Tensor>& feeds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
