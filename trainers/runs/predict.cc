#include "belfry/trainers/runs/predict.h"

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/predictor.h"

struct belfry_predictor {
  belfry_predictor(const char* file, const belfry::DeviceSpec& device)
      : predictor(belfry::Predictor::open(file, device)) {}

  belfry::Predictor predictor;
  const std::vector<std::string> outputs = predictor.outputs();
};

namespace belfry {
namespace {

static_assert(static_cast<int>(DType::kBF16) == BELFRY_BF16 &&
              static_cast<int>(DType::kF64) == BELFRY_F64 &&
              static_cast<int>(DType::kI64) == BELFRY_I64 &&
              static_cast<int>(DType::kBool) == BELFRY_BOOL);

thread_local std::string last_error;  // NOLINT: as errno

// What `f` returns, or `failed` after an exception.
template <class Result, class F>
Result guarded(Result failed, const F& f) noexcept {
  try {
    return f();
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (...) {
      last_error.clear();
    }
  } catch (...) {
    last_error.clear();
  }
  return failed;
}

Tensor tensor_of(const belfry_tensor& input) {
  require(input.name != nullptr, "an input has no name");
  require(input.dtype >= BELFRY_F16 && input.dtype <= BELFRY_BOOL, "input '", input.name,
          "' has the dtype ", static_cast<int>(input.dtype), ", which is none");
  require(input.rank >= 0 && input.rank <= BELFRY_MOST_DIMS, "input '", input.name, "' has ",
          input.rank, " dimensions; there are 0 to ", static_cast<int>(BELFRY_MOST_DIMS));
  const std::vector<std::int64_t> dims(input.shape, input.shape + input.rank);
  for (const std::int64_t dim : dims)
    require(dim >= 0, "input '", input.name, "' has a dimension of ", dim);
  Tensor tensor{Shape(dims), static_cast<DType>(input.dtype)};
  require(input.data != nullptr || tensor.bytes() == 0, "input '", input.name, "' has no data");
  if (input.dtype == BELFRY_BOOL)
    for (std::size_t i = 0; i < tensor.bytes(); ++i)
      require(static_cast<const unsigned char*>(input.data)[i] <= 1, "input '", input.name,
              "' has a bool that is neither 0 nor 1");
  if (tensor.bytes() > 0) std::memcpy(tensor.mutable_raw(), input.data, tensor.bytes());
  return tensor;
}

void describe_tensor(const std::string& name, const TensorType& type, belfry_tensor& out) {
  require(type.shape.rank() <= BELFRY_MOST_DIMS, "'", name, "' has ", type.shape.rank(),
          " dimensions, more than the ", static_cast<int>(BELFRY_MOST_DIMS), " of belfry_tensor");
  out = {};
  out.name = name.c_str();
  out.dtype = static_cast<belfry_dtype>(type.dtype);
  out.rank = static_cast<int>(type.shape.rank());
  for (std::size_t axis = 0; axis < type.shape.rank(); ++axis) out.shape[axis] = type.shape[axis];
}

struct OwnedResult {
  std::string name;
  Tensor value;
};

}  // namespace

extern "C" {

belfry_predictor* belfry_open(const char* file, const char* device) {
  return guarded<belfry_predictor*>(nullptr, [&] {
    require(file != nullptr, "there is no file to open");
    return new belfry_predictor(file, device ? DeviceSpec(device) : DeviceSpec::local("CPU", 0));
  });
}

void belfry_close(belfry_predictor* predictor) { delete predictor; }

int belfry_run(belfry_predictor* predictor, const belfry_tensor* inputs, int count,
               const char* output, belfry_tensor* result) {
  return guarded(-1, [&] {
    require(predictor && output && result && (inputs || count == 0),
            "belfry_run() was given a null pointer");
    std::map<std::string, Tensor> feeds;
    for (int i = 0; i < count; ++i)
      require(feeds.emplace(inputs[i].name ? inputs[i].name : "", tensor_of(inputs[i])).second,
              "input '", inputs[i].name, "' is there twice");
    auto owned =
        std::make_unique<OwnedResult>(OwnedResult{output, predictor->predictor(output, feeds)});
    describe_tensor(owned->name, {owned->value.shape(), owned->value.dtype()}, *result);
    result->data = owned->value.raw();
    result->owner = owned.release();
    return 0;
  });
}

void belfry_free(belfry_tensor* result) {
  if (!result) return;
  delete static_cast<OwnedResult*>(result->owner);
  *result = {};
}

int belfry_input(const belfry_predictor* predictor, int i, belfry_tensor* input) {
  return guarded(-1, [&] {
    require(predictor && input, "belfry_input() was given a null pointer");
    const std::vector<PredictorInput>& all = predictor->predictor.inputs();
    require(i >= 0 && i < std::ssize(all), "there is no input ", i, "; there are ", all.size());
    const PredictorInput& wanted = all[static_cast<std::size_t>(i)];
    describe_tensor(wanted.name, {wanted.shape, wanted.dtype.value_or(DType::kF32)}, *input);
    return 0;
  });
}

const char* belfry_output(const belfry_predictor* predictor, int i) {
  return guarded<const char*>(nullptr, [&] {
    require(predictor != nullptr, "belfry_output() was given a null pointer");
    const std::vector<std::string>& all = predictor->outputs;
    require(i >= 0 && i < std::ssize(all), "there is no output ", i, "; there are ", all.size());
    return all[static_cast<std::size_t>(i)].c_str();
  });
}

const char* belfry_error(void) { return last_error.c_str(); }  // NOLINT: this is C

}  // extern "C"
}  // namespace belfry
