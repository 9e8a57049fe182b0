// Predictions of requests in JSON, for servers.
#pragma once
#include <string_view>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/runs/predictor.h"

namespace belfry {

// {"inputs": {"image": "[?,28,28,1]"}, "outputs": ["logits"]}.
JsonValue description_of(const Predictor& predictor);

// Computes `output` of the inputs that `request` gives, each as a tensor {"shape": [1,28,28,1],
// "data": [0, 0.5, ...]}. The result is one, too; numbers that are not finite are null. Throws as
// Predictor does, and InvalidArgument, with the line and column of `request`, for what is no such
// tensor, or does not fit the type of the input.
JsonValue predict_json(Predictor& predictor, std::string_view output, const JsonValue& request);

}  // namespace belfry
