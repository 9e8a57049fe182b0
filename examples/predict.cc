// Loads a run of mnist and classifies images of its test data. Try: predict RUN_DIR
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>

#include "belfry/belfry.h"
using namespace belfry;

Output convnet(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.output("probabilities", softmax(logits));
  return cross_entropy(logits, label);
}

struct PredictFlags {
  std::string run, probabilities, json;
  PredictorOptions weights;
  RunDirs data;
  int images = 1000;
  std::string help;
};

// Ten numbers per image, on one line.
std::string as_csv(std::span<const float> probabilities) {
  std::string text;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%.9g%c", probabilities[i], i % 10 == 9 ? '\n' : ',');
    text += number;
  }
  return text;
}

int predict(const PredictFlags& options) {
  OutputFiles outputs(local_file_system());
  OutputFile* const csv = outputs.open("--probabilities", options.probabilities);
  OutputFile* const json = outputs.open("--json", options.json);
  Predictor predictor(options.run, convnet,
                      {{"image", {kUnknownSize, 28, 28, 1}}, {"label", {kUnknownSize}}},
                      options.weights);
  const auto images = data::mnist(options.data, false);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(options.images));
  std::iota(rows.begin(), rows.end(), 0);
  if (options.images > images->size())
    throw FlagError("--images=" + std::to_string(options.images) + ": there are " +
                    std::to_string(images->size()));
  const std::vector<Tensor> batch = gather_tensors(*images, rows);
  const Tensor probabilities = predictor("probabilities", {{"image", batch[0]}});
  int right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto of_image = probabilities.data<float>().subspan(10 * i, 10);
    const auto digit = std::ranges::max_element(of_image) - of_image.begin();
    right += digit == batch[1].data<std::int32_t>()[i];
  }
  std::fprintf(outputs.on_stdout() ? stderr : stdout, "%d of %d images are classified rightly\n",
               right, options.images);
  if (csv) csv->write(as_csv(probabilities.data<float>()));
  const JsonValue report = JsonValue::object()
                               .set("program", "predict")
                               .set("run", options.run)
                               .set("data", images->describe())
                               .set("images", options.images)
                               .set("validation_accuracy", 1.0 * right / options.images)
                               .set("bad_records", images->left_out());
  if (json) json->write(report.str(2) + "\n");
  outputs.finish();
  return 0;
}

int main(int argc, char** argv) {
  const auto parse = [](std::span<const char* const> arguments, const std::string& program) {
    PredictFlags options;
    FlagParser parser("Classifies images by a run of mnist.", program);
    parser.add("--data_dir", options.data.data_dir, "DIR",
               "folder with the files of MNIST [generated digits]");
    parser.add_parsed("--bad_records", options.data.bad_records, parse_bad_records, "stop|skip:N",
                      "end with the first bad record of the data, or leave out up to N [stop]");
    parser.add("--images", options.images, 1, 10000, "N", "how many of the test data [1000]");
    parser.add("--probabilities", options.probabilities, "FILE",
               "write those of the ten digits there, a line per image [none]");
    add_weight_flags(parser, "", options.weights.weights, options.weights.checkpoint);
    parser.add("--json", options.json, "FILE",
               "write the results there, as one JSON object [none]");
    parser.add_argument("RUN_DIR", options.run, "run directory, or checkpoint",
                        FlagParser::Needed::kYes);
    options.help = parser.parse(arguments);
    return options;
  };
  return run_program(argc, argv, parse, predict);
}
