#include "belfry/trainers/commands/exported_graph.h"

#include <thread>

#include <gmock/gmock.h>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/runs/saved_runs.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/runs/predictor.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace exported_graph_test {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const Op kForeign{.name = "ExportedGraphTestForeign",
                  .inputs = 1,
                  .shape = same_as_input,
                  .gradient = same_gradient,
                  .alias = true};

std::vector<PredictorInput> inputs_of(const std::vector<Dataset::Field>& fields) {
  std::vector<PredictorInput> inputs;
  for (const Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), kUnknownSize);
    inputs.push_back({field.name, Shape(dims), field.dtype});
  }
  return inputs;
}

class ExportedGraphTest : public SavedRunsTest {
 protected:
  // Makes the run directory "run" of an untrained model, and a plan of it.
  void export_model(const ModelFunction& model, const std::vector<PredictorInput>& inputs) {
    remove_tree(files_, at("run"));
    files_.create_directory(at("run/checkpoints"));
    Graph graph(3);
    predict_tower(graph, {}, [&](Tower& tower) {
      std::vector<Output> fields;
      for (const PredictorInput& input : inputs)
        fields.push_back(placeholder(graph, input.name, *input.dtype, input.shape));
      model.build(tower, fields);
    });
    Session session(graph);
    save_checkpoint(session, at("run/checkpoints/step-00000001"));
    write_text_file(files_, at("run/graph.safetensors"), *predicting_graph_file(model, inputs));
    write_plan();
  }

  void write_plan() {
    const StoredCheckpoint checkpoint = read_checkpoint(at("run/checkpoints/step-00000001"));
    const ExportedGraph exported = graph_of_checkpoint(checkpoint, WeightChoice::kValidated);
    write_text_file(files_, at("plan"), write_graph(exported.file.ends, exported.weights));
  }

  // Writes the file again with another text of the graph.
  void replace_in_graph(const std::string& path, const std::string& from, const std::string& to) {
    const Safetensors file(files_.read(path), path);
    std::map<std::string, std::string> metadata = file.metadata();
    std::string& graph = metadata.at("graph");
    graph.replace(graph.find(from), from.size(), to);
    std::vector<StoredTensor> tensors;
    for (const auto& [name, tensor] : file.tensors()) tensors.push_back(tensor);
    lay_out_safetensors(tensors, metadata);  // for their order
    std::uint32_t crc = crc32_of(std::as_bytes(std::span(graph)));
    std::string values;
    for (const StoredTensor& tensor : tensors) {
      const std::span<const std::byte> bytes = file.values(file.tensors().at(tensor.name));
      crc = crc32_of(bytes, crc);
      values.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    metadata["crc32"] = hex(crc, 8);
    write_text_file(files_, path, lay_out_safetensors(tensors, metadata) + values);
  }

  void expect_equal_bits(const ModelSpec& spec, std::int64_t samples) {
    SCOPED_TRACE(spec.name);
    const std::vector<PredictorInput> inputs = inputs_of(spec.fields);
    export_model(spec.model, inputs);
    Predictor by_code(at("run/checkpoints/step-00000001"), spec.model, inputs);
    Predictor by_plan = Predictor::open(at("plan"));
    const auto data = synthetic_data(spec.fields, spec.classes, samples, 1);
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < samples; ++row) rows.push_back(row);
    const std::map<std::string, Tensor> feeds{
        {spec.fields[0].name, gather_tensors(*data, rows)[0]}};
    EXPECT_EQ(by_plan("logits", feeds), by_code("logits", feeds));
    EXPECT_THAT(by_plan.outputs(), ElementsAre("logits"));
  }
};

TEST_F(ExportedGraphTest, PredictsTheBitsOfTheModel) {
  for (const char* const name : {"mnist", "mlp", "resnet20", "gpt", "lstm", "gru"})
    expect_equal_bits(find_model(name), 3);
  if (!kThreadSanitized) expect_equal_bits(find_model("resnet50", 64), 2);  // it takes a minute
  models::GptSize llama{.architecture = "llama", .layers = 2, .kv_heads = 2};
  expect_equal_bits(find_model("gpt", 0, {.gpt = llama}), 2);
}

// Constants, numbers drawn for samples, and two outputs.
Output drawn(Tower& tower, Output x, Output y) {
  const Output noise = random_normal(tower, x, {2}, 1, DType::kF32);
  const Output answer = dense(tower, "fc", x + noise, {.units = 2}) * 3.0;
  tower.output("answer", clip(answer, -std::numeric_limits<double>::infinity(), 1));
  tower.output("noise", noise);
  return reduce_mean(square(answer - y));
}

const std::vector<PredictorInput> kPoints{{"x", {kUnknownSize, 2}, DType::kF32},
                                          {"y", {kUnknownSize, 2}, DType::kF32}};
const std::map<std::string, Tensor> kOnePoint{{"x", Tensor({1, 2}, std::vector<float>{1, 2})}};

TEST_F(ExportedGraphTest, DrawsTheNumbersOfTheModel) {
  export_model(drawn, kPoints);
  Predictor by_code(at("run/checkpoints/step-00000001"), drawn, kPoints);
  Predictor by_plan = Predictor::open(at("plan"));
  EXPECT_THAT(by_plan.outputs(), ElementsAre("answer", "noise"));
  ASSERT_EQ(by_plan.inputs().size(), 1u) << "no output depends on y";
  EXPECT_EQ(by_plan.inputs()[0].shape, Shape({kUnknownSize, 2}));
  for (const char* const output : {"answer", "noise"})
    EXPECT_EQ(by_plan(output, kOnePoint), by_code(output, kOnePoint)) << output;
}

TEST_F(ExportedGraphTest, AnswersSeveralThreads) {
  export_model(drawn, kPoints);
  Predictor predict = Predictor::open(at("plan"));
  const Tensor expected = predict("answer", kOnePoint);
  std::vector<int> equal(4);
  {
    std::vector<std::jthread> threads;
    for (int& count : equal)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) count += predict("answer", kOnePoint) == expected;
      });
  }
  EXPECT_THAT(equal, Each(20));
}

TEST_F(ExportedGraphTest, NamesWhatAPlanLacks) {
  export_model(drawn, kPoints);
  Predictor predict = Predictor::open(at("plan"));
  EXPECT_THAT(message_of<NotFoundError>([&] { predict("answr", kOnePoint); }),
              AllOf(HasSubstr("answr"), HasSubstr("did you mean 'answer'")));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                predict("answer", {{"z", Tensor()}});
              }),
              HasSubstr("no input 'z'"));
  EXPECT_THROW(predict("answer", {}), InvalidArgument);
  EXPECT_THAT(message_of<InvalidArgument>([&] { Predictor::open(at("run/graph.safetensors")); }),
              HasSubstr("without its weights"));
  EXPECT_THROW(Predictor::open(at("none")), NotFoundError);
  EXPECT_THAT(message_of<IoError>(
                  [&] { Predictor::open(at("run/checkpoints/step-00000001/model.safetensors")); }),
              HasSubstr("holds no graph"));
}

TEST_F(ExportedGraphTest, FindsDamage) {
  export_model(drawn, kPoints);
  std::string bytes = text_of_file(at("plan"));
  bytes.back() ^= 1;
  write_text_file(files_, at("plan"), bytes);
  EXPECT_THAT(message_of<IoError>([&] { Predictor::open(at("plan")); }),
              AllOf(HasSubstr(at("plan")), HasSubstr("damaged")));
}

TEST_F(ExportedGraphTest, RefusesAnOpOfTheProgramByName) {
  export_model(
      [](Tower& tower, Output x, Output y) {
        const Output passed = x.graph().add(kForeign, {x}, At("mine")).output();
        tower.output("answer", dense(tower, "fc", passed, {.units = 2}));
        return reduce_mean(y);
      },
      kPoints);
  // As a program that lacks the op sees it.
  replace_in_graph(at("run/graph.safetensors"), kForeign.name, "Swish");
  EXPECT_THAT(message_of<InvalidArgument>([&] { write_plan(); }),
              AllOf(HasSubstr("node 'tower-pred-0/mine'"), HasSubstr("no op Swish")));
}

TEST_F(ExportedGraphTest, RefusesAModelThatWritesVariables) {
  const auto counting = [](Tower& tower, Output x, Output y) {
    const Variable count = variable(tower.graph(), "count", {1}, {.trainable = false});
    tower.output("count", assign_add(count, reduce_sum(x, {1})).output());
    return reduce_mean(y);
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] { predicting_graph_file(counting, kPoints); }),
              AllOf(HasSubstr("AssignAdd"), HasSubstr("writes a variable")));
}

TEST_F(ExportedGraphTest, SaysThatARunHasNoGraph) {
  export_model(drawn, kPoints);
  files_.remove(at("run/graph.safetensors"));
  EXPECT_THAT(message_of<NotFoundError>([&] { write_plan(); }),
              AllOf(HasSubstr(at("run/graph.safetensors")), HasSubstr("Tower::output")));
}

}  // namespace exported_graph_test
}  // namespace belfry
