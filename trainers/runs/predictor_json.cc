#include "belfry/trainers/runs/predictor_json.h"

#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

template <class T>
T number_of(const JsonValue& value) {
  if constexpr (!std::is_integral_v<T>) {
    return static_cast<T>(value.number());
  } else {
    const std::int64_t number = value.integer();
    if (static_cast<std::int64_t>(static_cast<T>(number)) != number)
      throw InvalidArgument(cat(value.where(), number, " does not fit ", name_of(dtype_of<T>())));
    return static_cast<T>(number);
  }
}

Tensor tensor_of(const JsonValue& json, DType dtype) {
  std::vector<std::int64_t> dims;
  for (const JsonValue& size : json.at("shape").items()) dims.push_back(size.integer());
  return visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values;
    for (const JsonValue& value : json.at("data").items()) values.push_back(number_of<T>(value));
    return Tensor(Shape(dims), values);  // throws unless their number is that of the shape
  });
}

JsonValue json_of(const Tensor& tensor) {
  JsonValue data = JsonValue::array();
  visit_any(tensor.dtype(), [&](auto zero) {
    for (const auto value : tensor.data<decltype(zero)>()) data.push(value);
  });
  return JsonValue::object()
      .set("shape", JsonValue::array(tensor.shape().dims()))
      .set("data", std::move(data));
}

}  // namespace

JsonValue description_of(const Predictor& predictor) {
  JsonValue inputs = JsonValue::object();
  for (const PredictorInput& input : predictor.inputs()) inputs.set(input.name, input.shape.str());
  return JsonValue::object()
      .set("inputs", std::move(inputs))
      .set("outputs", JsonValue::array(predictor.outputs()));
}

JsonValue predict_json(Predictor& predictor, std::string_view output, const JsonValue& request) {
  std::map<std::string, Tensor> feeds;
  for (const PredictorInput& input : predictor.inputs())
    if (const JsonValue* const given = request.find(input.name))
      feeds.emplace(input.name, tensor_of(*given, input.type()));
  return json_of(predictor(output, feeds));
}

}  // namespace belfry
