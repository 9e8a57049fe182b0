// Loads a run of mnist and classifies images of its test data. Try: predict RUN_DIR
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "belfry/belfry.h"
using namespace belfry;

Output convnet(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.output("logits", logits);
  return cross_entropy(logits, label);
}

int predict(const std::string& run, const std::string& data_dir) {
  Predictor predictor(run, convnet, {{"image", {kUnknown, 28, 28, 1}}, {"label", {kUnknown}}});
  const auto images = data::mnist({.data_dir = data_dir}, false);
  std::vector<std::int64_t> rows(1000);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<Tensor> batch = gather_tensors(*images, rows);
  const Tensor logits = predictor("logits", {{"image", batch[0]}});
  int right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto of_image = logits.data<float>().subspan(10 * i, 10);
    const auto digit = std::ranges::max_element(of_image) - of_image.begin();
    right += digit == batch[1].data<std::int32_t>()[i];
  }
  std::printf("%d of %zu images are classified rightly\n", right, rows.size());
  return 0;
}

int main(int argc, char** argv) {
  std::string run, data_dir;
  const auto parse = [&](std::span<const char* const> arguments, const std::string& program) {
    FlagParser parser("Classifies images by a run of mnist.", program);
    parser.add("--data_dir", data_dir, "DIR", "folder with the files of MNIST [generated digits]");
    parser.add_argument("RUN_DIR", run, "run directory, or checkpoint");
    struct Parsed {
      std::string help;
    };
    return Parsed{parser.parse(arguments)};
  };
  return run_program(argc, argv, parse, [&](const auto&) {
    require<FlagError>(!run.empty(), "name a run directory: predict RUN_DIR");
    return predict(run, data_dir);
  });
}
