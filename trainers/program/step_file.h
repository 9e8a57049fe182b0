// One step of a model as a file, to compare it with that of another program: --write_step.
#pragma once
#include <functional>
#include <string>

namespace belfry {

class Session;
struct Dataset;
struct TrainerOptions;

// Computes loss and gradients of one step on the first of the devices, and returns a safetensors
// file of
//   input/FIELD     the first samples of the training data, as many as all devices take in a step
//   random/NODE     what an op of the model has drawn: noise, or the mask of a dropout, u8
//   variable/NAME   each trained variable, which the step leaves as it is
//   gradient/NAME   its gradient
//   output/NAME     each output of the model, such as logits
//   loss            or loss/NAME, if the model has several
// The metadata are `order`, the names of these tensors in the order in which the model makes them,
// and `variables/NAME` for each of several losses, the names of the variables that minimise it; one
// name a line.
//
// `load` may set variables before the step. Throws InvalidArgument if there are fewer samples.
std::string step_file(const TrainerOptions& options, const Dataset& data,
                      const std::function<void(Session&)>& load);

}  // namespace belfry
