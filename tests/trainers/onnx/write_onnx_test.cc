#include "belfry/trainers/onnx/write_onnx.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/indexing/top_k.h"
#include "belfry/ops/linear_algebra/cholesky.h"
#include "belfry/ops/linear_algebra/fft.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/square.h"
#include "belfry/tests/bench/onnx_test_data.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/runs/event_reader.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/models/models.h"

namespace belfry {
namespace write_onnx_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The fields of a message of one number.
std::vector<std::string> all_of(std::string_view message, int field) {
  std::vector<std::string> values;
  for (const auto& [number, value] : fields_of(message))
    if (number == field) values.push_back(value);
  return values;
}
std::string one_of(std::string_view message, int field) { return all_of(message, field).at(0); }
std::int64_t number_of(std::string_view message, int field) {
  return number_at<std::int64_t>(one_of(message, field));
}

struct ReadTensor {
  std::vector<std::int64_t> dims;
  std::int64_t type = 0;
  std::string values;                           // inside
  std::map<std::string, std::string> external;  // location, offset, length
};

// "x[batch,4]".
std::string named_shape(std::string_view info) {
  std::vector<std::string> sizes;
  const std::string tensor = one_of(one_of(info, 2), 1);
  for (const std::string& dimension : all_of(one_of(tensor, 2), 1)) {
    const auto fields = fields_of(dimension);
    sizes.push_back(fields.empty()         ? "?"
                    : fields[0].first == 1 ? cat(number_at<std::int64_t>(fields[0].second))
                                           : fields[0].second);
  }
  return cat(one_of(info, 1), "[", join(sizes, ","), "]");
}

// What write_onnx() takes.
struct GivenModel {
  PredictingGraph graph;
  std::map<std::string, std::span<const std::byte>> weights;
};

struct ReadModel {
  explicit ReadModel(const std::string& bytes)
      : ir_version(number_of(bytes, 1)), opset(number_of(one_of(bytes, 8), 2)) {
    const std::string graph = one_of(bytes, 7);
    for (const std::string& node : all_of(graph, 1)) ops.push_back(one_of(node, 4));
    for (const std::string& info : all_of(graph, 11)) inputs.push_back(named_shape(info));
    for (const std::string& info : all_of(graph, 12)) outputs.push_back(named_shape(info));
    for (const std::string& message : all_of(graph, 5)) {
      ReadTensor tensor{.type = number_of(message, 2)};
      for (const auto& [number, value] : fields_of(message)) {
        if (number == 1) tensor.dims.push_back(number_at<std::int64_t>(value));
        if (number == 9) tensor.values = value;
        if (number == 13) tensor.external[one_of(value, 1)] = one_of(value, 2);
      }
      tensors[one_of(message, 8)] = tensor;
    }
  }

  std::int64_t ir_version, opset;
  std::vector<std::string> ops, inputs, outputs;
  std::map<std::string, ReadTensor> tensors;
};

// A folder for files, and a graph whose placeholder `x` is fed.
class WriteOnnx : public testing::Test {
 protected:
  WriteOnnx() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~WriteOnnx() override { std::filesystem::remove_all(folder_); }

  // Initial values, as after a training.
  GivenModel model_of(const Output& x, const Output& y) {
    session_.emplace(graph_);
    GivenModel model{.graph = {.inputs = {x}, .outputs = {{"y", y}}}, .weights = {}};
    for (const Variable& variable : graph_.variables()) {
      values_.push_back(session_->read(variable));
      model.weights[std::string(variable.logical_name())] = bytes_of(values_.back());
    }
    return model;
  }
  static std::span<const std::byte> bytes_of(const Tensor& value) {
    return {value.raw(), value.bytes()};
  }
  static std::string text_of_bytes(const Tensor& value) {
    return {reinterpret_cast<const char*>(value.raw()), value.bytes()};
  }

  ReadModel written(const GivenModel& model, const OnnxOptions& options = {}) {
    write_onnx(model.graph, model.weights, path_, local_file_system(), options);
    return ReadModel(text_of(local_file_system(), path_));
  }
  std::string refusal(const GivenModel& model) {
    try {
      write_onnx(model.graph, model.weights, path_);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(local_file_system().list(folder_), IsEmpty());
      return error.what();
    }
    return "";
  }
  Output images(std::int64_t channels) {
    return placeholder(graph_, "x", DType::kF32, {kUnknownSize, 8, 8, channels});
  }

  const std::string folder_ = path_of_test("");
  const std::string path_ = folder_ + "/model.onnx";
  Graph graph_;
  Tower tower_{graph_, "", false};
  std::optional<Session> session_;
  std::deque<Tensor> values_;
};

TEST_F(WriteOnnx, HasNodesInitialisersAndTheFreeBatch) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 4});
  const Output y = relu(dense(tower_, "fc", x, {.units = 3}));
  const GivenModel model = model_of(x, y);
  const ReadModel read = written(model);
  EXPECT_EQ(read.ir_version, 8);
  EXPECT_EQ(read.opset, kOnnxOpset);
  EXPECT_THAT(read.ops, ElementsAre("MatMul", "Add", "Relu", "Identity"));
  EXPECT_THAT(read.inputs, ElementsAre("x[batch,4]"));
  EXPECT_THAT(read.outputs, ElementsAre("y[batch,3]"));
  ASSERT_TRUE(read.tensors.contains("fc/W"));
  const ReadTensor& w = read.tensors.at("fc/W");
  EXPECT_THAT(w.dims, ElementsAre(4, 3));
  EXPECT_EQ(w.type, 1);  // float
  EXPECT_EQ(w.values, text_of_bytes(values_[0]));
}

TEST_F(WriteOnnx, LeavesOutWhatTheOutputsDoNotDependOn) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 4});
  const Output label = placeholder(graph_, "label", DType::kF32, {kUnknownSize, 4});
  const Output y = relu(x);
  reduce_mean(y - label);
  GivenModel model = model_of(x, y);
  model.graph.inputs.push_back(label);
  const ReadModel read = written(model);
  EXPECT_THAT(read.ops, ElementsAre("Relu", "Identity"));
  EXPECT_THAT(read.inputs, ElementsAre("x[batch,4]"));
}

TEST_F(WriteOnnx, SaysHowOftenAnOutputHasTheBatch) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 6, 2});
  EXPECT_THAT(written(model_of(x, reshape(x, {kUnknownSize, 2}))).outputs,
              ElementsAre("y[6*batch,2]"));
}

// Images have channels first from the first convolution to the mean.
TEST_F(WriteOnnx, TransposesImagesOnce) {
  const Output x = images(3);
  Output y = conv2d(tower_, "conv0", x, {.filters = 5, .kernel = 3});
  y = max_pool(relu(batch_norm(tower_, "bn", y)));
  y = y + conv2d(tower_, "conv1", y, {.filters = 5, .kernel = 3, .bias = false});
  const ReadModel read = written(model_of(x, reduce_mean(y, {1, 2})));
  EXPECT_THAT(read.ops, ElementsAre("Transpose", "Conv", "Reshape", "Add", "BatchNormalization",
                                    "Relu", "MaxPool", "Conv", "Add", "ReduceMean", "Identity"));
}

TEST_F(WriteOnnx, WritesFiltersWithChannelsFirst) {
  const Output x = images(2);
  const Output y = conv2d(tower_, "conv", x, {.filters = 1, .kernel = 2, .bias = false});
  GivenModel model = model_of(x, y);
  const Tensor filter({1, 2, 2, 2}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  model.weights["conv/W"] = bytes_of(filter);
  const ReadModel read = written(model);
  const ReadTensor& w = read.tensors.at("conv/W");
  EXPECT_THAT(w.dims, ElementsAre(1, 2, 2, 2));
  EXPECT_EQ(w.values, text_of_bytes(Tensor({8}, std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7})));
}

TEST_F(WriteOnnx, PutsLargeTensorsIntoASecondFile) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 40});
  const Output hidden = dense(tower_, "a", x, {.units = 50});
  const GivenModel model = model_of(x, dense(tower_, "b", hidden, {.units = 30}));
  const ReadModel inside = written(model, {.most_bytes = 1 << 20});
  EXPECT_THAT(local_file_system().list(folder_), ElementsAre("model.onnx"));
  const ReadModel outside = written(model, {.most_bytes = 4000});
  EXPECT_THAT(local_file_system().list(folder_), ElementsAre("model.onnx", "model.onnx.data"));
  const std::string data = text_of(local_file_system(), path_ + ".data");
  for (const auto& [name, tensor] : inside.tensors) {
    const ReadTensor& moved = outside.tensors.at(name);
    EXPECT_EQ(moved.dims, tensor.dims);
    if (name.ends_with("/b")) {  // too small
      EXPECT_EQ(moved.values, tensor.values);
      continue;
    }
    EXPECT_EQ(moved.values, "");
    EXPECT_EQ(moved.external.at("location"), "model.onnx.data");
    const std::size_t begin = std::stoul(moved.external.at("offset"));
    EXPECT_EQ(begin % 4096, 0);
    EXPECT_EQ(data.substr(begin, std::stoul(moved.external.at("length"))), tensor.values);
  }
}

TEST_F(WriteOnnx, WritesTheModelsOfTheLibrary) {
  for (const char* const name : {"mnist", "mlp", "resnet20", "resnet50", "gpt", "lstm", "gru"}) {
    const ModelSpec spec = find_model(name);
    Graph graph;
    const TowerRecord tower = predict_tower(graph, {}, [&](Tower& t) {
      std::vector<Output> inputs;
      for (const Dataset::Field& field : spec.fields) {
        std::vector<std::int64_t> dims = field.shape.dims();
        dims.insert(dims.begin(), kUnknownSize);
        inputs.push_back(placeholder(graph, field.name, field.dtype, Shape(dims)));
      }
      spec.model.build(t, inputs);
    });
    GivenModel model{.graph = {.inputs = {tower.inputs[0]}, .outputs = {}}, .weights = {}};
    for (const auto& [output, value] : tower.outputs)
      model.graph.outputs.emplace_back(output, value);
    std::deque<std::vector<std::byte>> zeros;
    for (const Variable& variable : graph.variables()) {
      const TensorType type{variable.shape(), variable.dtype()};
      zeros.emplace_back(static_cast<std::size_t>(type.bytes()));
      model.weights[std::string(variable.logical_name())] = zeros.back();
    }
    const ReadModel read = written(model, {.most_bytes = 0});
    EXPECT_LE(std::ranges::count(read.ops, "Transpose"), name == std::string("gpt") ? 30 : 2)
        << name;
    for (const Variable& variable : tower.trainables)
      EXPECT_TRUE(read.tensors.contains(std::string(variable.logical_name()))) << name;
  }
}

// ONNX draws its own numbers, a row for each sample.
TEST_F(WriteOnnx, WritesRandomNumbersAsSuch) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 4});
  const Output noise = random_normal(tower_, x, {3});
  EXPECT_THAT(written(model_of(x, relu(noise))).ops,
              ElementsAre("Shape", "Concat", "Expand", "RandomNormalLike", "Relu", "Identity"));
}

TEST_F(WriteOnnx, RefusesAnOpByItsNameAndLine) {
  const Output x = placeholder(graph_, "x", DType::kF32, {3, 3});
  EXPECT_THAT(refusal(model_of(x, relu(cholesky(x)))),
              AllOf(HasSubstr("Cholesky 'Cholesky' (built at "), HasSubstr("write_onnx_test.cc:"),
                    HasSubstr("there is no form of the op Cholesky in ONNX files")));
}

TEST_F(WriteOnnx, RefusesWhatIsMissing) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 4});
  const Output other = placeholder(graph_, "other", DType::kF32, {kUnknownSize, 3});
  GivenModel model = model_of(x, dense(tower_, "fc", x, {.units = 3}) + other);
  EXPECT_THAT(refusal(model), AllOf(HasSubstr("Placeholder 'other'"),
                                    HasSubstr("is no input of the file; its inputs are x")));
  model.graph.inputs.push_back(other);
  model.graph.outputs[0].first = "x";
  EXPECT_THAT(refusal(model), HasSubstr("two inputs or outputs of the ONNX file are called 'x'"));
  model.graph.outputs[0].first = "y";
  EXPECT_THROW(write_onnx(model.graph, model.weights, folder_ + "/none/model.onnx"), IoError);
  model.weights.erase("fc/W");
  EXPECT_THAT(refusal(model), HasSubstr("'fc/W'"));
}

TEST_F(WriteOnnx, KeepsTheOldFileIfWritingFails) {
  const Output x = placeholder(graph_, "x", DType::kF32, {kUnknownSize, 4});
  GivenModel model = model_of(x, dense(tower_, "fc", x, {.units = 3}));
  write_text_file(local_file_system(), path_, "old");
  model.weights["fc/W"] = {};
  EXPECT_THROW(write_onnx(model.graph, model.weights, path_), InvalidArgument);
  EXPECT_EQ(text_of(local_file_system(), path_), "old");
  EXPECT_THAT(local_file_system().list(folder_), ElementsAre("model.onnx"));
}

// A second layout, a free batch, a loop, Fourier transforms and losses, as onnxruntime computes
// them.
TEST_F(WriteOnnx, GivesOnnxruntimeWhatBelfryComputes) {
  const Output x = images(3);
  Output y = conv2d(tower_, "conv0", x, {.filters = 5, .kernel = 3, .stride = 2});
  y = max_pool(relu(batch_norm(tower_, "bn", y)));
  y = lstm(tower_, "lstm", reshape(y, {kUnknownSize, 4, 5}), {.hidden = 6}).y;
  const Output rows = reshape(y, {kUnknownSize, 6});
  const Output loss =
      sparse_softmax_cross_entropy(rows, argmax(rows, 1), {.smoothing = 0.1, .ignored = 2});
  const PredictingGraph graph{.inputs = {x},
                              .outputs = {{"y", y},
                                          {"loss", loss},
                                          {"entropy", sigmoid_cross_entropy(y, square(y))},
                                          {"spectrum", rfft(y, {.norm = FftNorm::kOrtho})},
                                          {"back", irfft(fft(rfft(y), {.axis = 1}), {.n = 5})}}};
  Session session(graph_);
  std::vector<std::vector<Tensor>> batches;
  for (const std::int64_t batch : {1, 2}) {
    Tensor images({batch, 8, 8, 3}, DType::kF32);
    for (std::int64_t i = 0; i < images.elements(); ++i)
      images.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i * 37 % 100);
    batches.push_back({images});
  }
  bench::write_onnx_test(folder_, graph, session, batches);
  const auto check = [&] {
    return run_program(std::string(BELFRY_SOURCE_DIR) + "/scripts/check_onnx", {folder_});
  };
  constexpr int kNoPackage = 77, kNoPython = 127;
  const Finished good = check();
  if (good.status == kNoPackage || good.status == kNoPython)
    GTEST_SKIP() << "needs the Python package onnxruntime: scripts/check_onnx --install";
  EXPECT_EQ(good.status, 0) << good.output << good.errors;
  write_text_file(local_file_system(), folder_ + "/test_data_set_1/output_0.pb",
                  bench::tensor_message("y", Tensor({2, 4, 6}, DType::kF32)));
  const Finished wrong = check();
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("test_data_set_1: y float32[2, 4, 6] differs"));
}

}  // namespace write_onnx_test
}  // namespace belfry
