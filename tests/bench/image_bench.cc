// Measures reading JPEG files as training and evaluations do, beside libjpeg-turbo alone; see
// docs/benchmarks.md.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/data/images.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry::bench {
namespace {

struct ImageBenchOptions {
  std::string folder, help;
  int rounds = 20;
  data::ImageOptions images{.format = "folder"};
};

ImageBenchOptions parse(std::span<const char* const> arguments, const std::string& program) {
  ImageBenchOptions wanted;
  FlagParser parser("Times reading all JPEG files of FOLDER/train/CLASS on one thread.", program);
  parser.add_argument("FOLDER", wanted.folder, "as --data_dir of resnet50",
                      FlagParser::Needed::kYes);
  parser.add("--rounds", wanted.rounds, 1, 1 << 20, "N",
             "times that each way reads all files [20]");
  parser.add("--image_bytes", wanted.images.as_bytes, "read images as bytes [false]");
  wanted.help = parser.parse(arguments);
  return wanted;
}

// Ends the program if a file is no JPEG image.
void decode_whole(const std::vector<std::byte>& file, std::vector<JSAMPLE>& pixels) {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  const std::size_t line = std::size_t{3} * jpeg.output_width;
  pixels.resize(line * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = &pixels[line * jpeg.output_scanline];
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
}

// Processor time of this thread: other processes hardly change it.
double cpu_seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

double median_after_first(const std::vector<double>& times) {
  return median({times.begin() + 1, times.end()});
}

int run(ImageBenchOptions wanted) {
  std::vector<std::string> paths;
  wanted.images.classes = 0;
  for (const auto& folder : std::filesystem::directory_iterator(wanted.folder + "/train")) {
    ++wanted.images.classes;
    for (const auto& file : std::filesystem::directory_iterator(folder))
      paths.push_back(file.path());
  }
  const auto images = data::images(wanted.images)({.data_dir = wanted.folder}, true);
  require(images->size() == std::ssize(paths), wanted.folder, ": ", paths.size(), " files, but ",
          images->size(), " images");
  std::vector<Tensor> sample = batch_tensors(*images, 1);
  std::vector<std::byte*> fields;
  for (Tensor& field : sample) fields.push_back(field.mutable_raw());
  const auto each = [&](const auto& gather) {
    for (std::int64_t i = 0; i < images->size(); ++i) gather(std::span<const std::int64_t>(&i, 1));
  };
  std::vector<JSAMPLE> pixels;
  std::vector<double> alone, evaluation, training;
  for (int round = 0; round <= wanted.rounds; ++round) {
    alone.push_back(cpu_seconds([&] {
      for (const std::string& path : paths) decode_whole(local_file_system().read(path), pixels);
    }));
    evaluation.push_back(
        cpu_seconds([&] { each([&](auto index) { images->gather(index, fields); }); }));
    training.push_back(cpu_seconds([&] {
      each(
          [&](auto index) { images->gather_training({.seed = 1, .epoch = round}, index, fields); });
    }));
  }
  const double plain = median_after_first(alone);
  for (const auto& [name, times] :
       {std::pair("libjpeg-turbo alone, all of each image", &alone),
        {"for evaluations: the middle, resized and normalised", &evaluation},
        {"for training: random parts, resized and normalised", &training}}) {
    const double seconds = median_after_first(*times);
    std::printf("%-52s %7.3f ms of a core per image, %5.1f %%\n", name,
                1e3 * seconds / static_cast<double>(paths.size()), 100 * plain / seconds);
  }
  return 0;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  return belfry::run_program(argc, argv, belfry::bench::parse, belfry::bench::run);
}
