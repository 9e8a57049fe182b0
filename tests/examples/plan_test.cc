// Exports a run as a plan, and runs it from a C program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/trainers/runs/predict.h"
#include "belfry/trainers/runs/predictor.h"

namespace belfry {
namespace plan_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The program in C of docs/command.md.
std::string documented_program() {
  const std::string page = text_of_file(cat(BELFRY_SOURCE_DIR, "/docs/command.md"));
  const std::size_t begin = page.find("#include <belfry/predict.h>");
  return page.substr(begin, page.find("```", begin) - begin);
}

// A folder with a run of mnist, and a plan of it.
class PlanTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = temporary_path(".plan");
    local_file_system().create_directory(folder_);
    const Finished done = shell(
        "mnist --devices=cpu:1 --max_steps=2 --run_dir=run && "
        "belfry checkpoint export run mnist.plan --format=plan");
    ASSERT_EQ(done.status, 0) << done.errors;
    exported_ = done.output;
  }
  static void TearDownTestSuite() { remove_tree(local_file_system(), folder_); }

  static Finished shell(const std::string& command) {
    return run_program(
        "sh", {"-c", cat("cd ", folder_, " && PATH=", BELFRY_BIN_DIR, ":$PATH; ", command)});
  }
  static std::string plan() { return cat(folder_, "/mnist.plan"); }

  static inline std::string folder_, exported_;
};

TEST_F(PlanTest, SaysWhatItComputes) {
  EXPECT_THAT(exported_, AllOf(HasSubstr("wrote step 2"), HasSubstr("image f32[?,28,28,1]"),
                               HasSubstr("logits f32[?,10]")));
}

TEST_F(PlanTest, RunsFromC) {
  if (kSanitized) GTEST_SKIP() << "the program would need the sanitizer's library";
  write_text_file(local_file_system(), cat(folder_, "/main.c"), documented_program());
  const std::string lib = cat(BELFRY_BIN_DIR, "/../lib");
  const Finished built =
      shell(cat("cc -std=c99 -pedantic -Wall -Wextra -Werror main.c -I", BELFRY_BIN_DIR,
                "/../include -L", lib, " -lbelfry -Wl,-rpath,", lib, " -o main"));
  ASSERT_EQ(built.status, 0) << built.errors;
  const Finished done = shell("./main");
  ASSERT_EQ(done.status, 0) << done.output << done.errors;
  Predictor predict = Predictor::open(plan());
  const Tensor logits = predict("logits", {{"image", Tensor({1, 28, 28, 1}, DType::kF32)}});
  std::string expected;
  for (const float value : logits.data<float>()) {
    char text[32];
    std::snprintf(text, sizeof text, "%g\n", value);
    expected += text;
  }
  EXPECT_EQ(done.output, expected);
}

// Prints the answers to GET /, to a POST of four black images, and to wrong requests.
constexpr char kClient[] = R"(
import json, sys, urllib.error, urllib.request
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(sys.argv[1] + path, data) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
images = {"shape": [4, 28, 28, 1], "data": [0] * (4 * 28 * 28)}
print(json.dumps([ask("/"), ask("/logits", {"image": images}), ask("/other", {"image": images}),
                  ask("/logits", {"image": {"shape": [1], "data": ["x"]}})]))
)";

TEST_F(PlanTest, IsServedByHttp) {
  if (local_file_system().target_kind(cat(BELFRY_BIN_DIR, "/serve")) != FileKind::kFile)
    GTEST_SKIP() << "serve is not built without cpp-httplib";
  write_text_file(local_file_system(), cat(folder_, "/client.py"), kClient);
  const Finished done = shell(
      "serve mnist.plan --port=0 >serve.log & server=$!; "
      "for i in $(seq 100); do grep -q http serve.log && break; sleep 0.1; done; "
      "python3 client.py $(grep -o 'http://.*' serve.log); status=$?; kill $server; exit $status");
  ASSERT_EQ(done.status, 0) << done.output << done.errors;
  const auto answers = nlohmann::json::parse(done.output);
  EXPECT_EQ(answers[0][1]["outputs"][0], "logits");
  EXPECT_EQ(answers[1][0], 200);
  EXPECT_EQ(answers[2][0], 404);
  EXPECT_EQ(answers[3][0], 400);
  Predictor predict = Predictor::open(plan());
  const Tensor logits = predict("logits", {{"image", Tensor({4, 28, 28, 1}, DType::kF32)}});
  const std::vector<float> served = answers[1][1]["data"];
  EXPECT_THAT(served, testing::ElementsAreArray(logits.data<float>()));
}

TEST_F(PlanTest, TellsCWhatIsWrong) {
  EXPECT_EQ(belfry_open(cat(folder_, "/none").c_str(), nullptr), nullptr);
  EXPECT_THAT(belfry_error(), HasSubstr("/none"));
  EXPECT_EQ(belfry_open(plan().c_str(), "/no:0"), nullptr);
  belfry_predictor* const predictor = belfry_open(plan().c_str(), nullptr);
  ASSERT_NE(predictor, nullptr) << belfry_error();
  belfry_tensor input, result;
  ASSERT_EQ(belfry_input(predictor, 0, &input), 0);
  EXPECT_STREQ(input.name, "image");
  EXPECT_EQ(input.dtype, BELFRY_F32);
  EXPECT_EQ(input.rank, 4);
  EXPECT_EQ(input.shape[0], -1);
  EXPECT_EQ(input.shape[1], 28);
  EXPECT_EQ(belfry_input(predictor, 1, &input), -1);
  EXPECT_STREQ(belfry_output(predictor, 0), "logits");
  EXPECT_EQ(belfry_output(predictor, 1), nullptr);
  const auto refusal = [&](const char* output, const belfry_tensor& with) {
    EXPECT_EQ(belfry_run(predictor, &with, 1, output, &result), -1);
    return std::string(belfry_error());
  };
  const std::vector<float> pixels(28 * 28);
  const belfry_tensor image{"image", BELFRY_F32, 4, {1, 28, 28, 1}, pixels.data(), nullptr};
  EXPECT_THAT(refusal("logit", image), HasSubstr("did you mean 'logits'"));
  belfry_tensor other = image;
  other.name = "picture";
  EXPECT_THAT(refusal("logits", other), HasSubstr("no input 'picture'"));
  other = image;
  other.rank = 9;
  EXPECT_THAT(refusal("logits", other), HasSubstr("9 dimensions"));
  other = image;
  other.shape[1] = 7;
  EXPECT_THAT(refusal("logits", other), HasSubstr("[1,7,28,1]"));
  ASSERT_EQ(belfry_run(predictor, &image, 1, "logits", &result), 0) << belfry_error();
  EXPECT_EQ(result.shape[1], 10);
  belfry_free(&result);
  EXPECT_EQ(result.data, nullptr);
  belfry_close(predictor);
}

TEST_F(PlanTest, IsAlsoWrittenAsOnnx) {
  const std::string command = "belfry checkpoint export run mnist.onnx --format=onnx";
  const Finished done = shell(command);
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("wrote step 2"),
                                 HasSubstr("as ONNX: image f32[?,28,28,1] -> logits f32[?,10]")));
  EXPECT_THAT(text_of_file(cat(folder_, "/mnist.onnx")), HasSubstr("conv0/W"));
  EXPECT_THAT(shell(command).errors, HasSubstr("--overwrite"));
  EXPECT_EQ(shell(command + " --overwrite").status, 0);
  EXPECT_THAT(shell("belfry checkpoint export run /dev/null --format=onnx").errors,
              HasSubstr("OUT must be a file"));
}

TEST_F(PlanTest, IsRefusedWhereItCannotBeMade) {
  const auto refusal = [](const std::string& arguments) {
    const Finished done = shell("belfry checkpoint export " + arguments);
    EXPECT_NE(done.status, 0);
    EXPECT_THAT(done.errors, StartsWith("error: "));
    return done.errors;
  };
  EXPECT_THAT(refusal("run a --format=plan --layout=torch"), HasSubstr("--layout=torch"));
  EXPECT_THAT(refusal("run a --format=plan --state"), HasSubstr("--state"));
  EXPECT_THAT(refusal("run a --names=gpt2 --state"), HasSubstr("--names=gpt2 renames weights"));
  EXPECT_THAT(refusal("run a --format=plans"), HasSubstr("there are safetensors, plan"));
  ASSERT_EQ(shell("cp -r run/checkpoints/step-00000002 alone").status, 0);
  EXPECT_THAT(refusal("alone a --format=plan"), HasSubstr("the graph of the run"));
}

}  // namespace plan_test
}  // namespace belfry
