// A bidirectional LSTM that reads lines of digits, trained by connectionist temporal classification
// (Graves et al. 2006): nobody tells it where in the line a digit is. The lines are made of digits
// of MNIST. Try: ctc --devices=cpu:4 --data_dir=DIR
#include <algorithm>

#include "belfry/belfry.h"
using namespace belfry;

constexpr int kSide = 28, kWidth = 128;    // of a digit and a line, pixels
constexpr int kColumns = 4;                // of pixels that are read at a time
constexpr int kTime = kWidth / kColumns;   // of the longest line
constexpr int kFewest = 2, kMost = 5;      // digits of a line
constexpr int kClasses = 11, kBlank = 10;  // ten digits, and what is between them
constexpr int kHidden = 64;

// Makes a line of two to five digits side by side, at random distances. Lines of training are made
// anew in each epoch.
void join(MappedSample& sample) {
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(sample.random.below(static_cast<std::uint64_t>(bound)));
  };
  std::vector<std::int64_t> which(static_cast<std::size_t>(kFewest + below(kMost - kFewest + 1)));
  for (std::int64_t& digit : which) digit = below(sample.data.size());
  const std::vector<Tensor> digits = gather_tensors(sample.data, which);
  const float* from = digits[0].data<float>().data();
  float* const image = sample.to.get<float>(0).data();
  std::int64_t left = 0, width = 0;
  for (std::size_t i = 0; i < which.size(); ++i) {
    for (int y = 0; y < kSide; ++y)
      for (float* to = image + y * kWidth + left; to < image + y * kWidth + left + kSide; ++to)
        *to = std::max(*to, *from++);
    width = left + kSide;
    left += 18 + below(8);
  }
  std::ranges::copy(digits[1].data<std::int32_t>(), sample.to.get<std::int32_t>(1).begin());
  sample.to.get<std::int32_t>(2)[0] = static_cast<std::int32_t>((width + kColumns - 1) / kColumns);
  sample.to.get<std::int32_t>(3)[0] = static_cast<std::int32_t>(which.size());
}

std::unique_ptr<Dataset> lines(const RunDirs& dirs, bool train) {
  return map_samples(data::mnist(dirs, train),
                     {{"image", DType::kF32, {kSide, kWidth}},
                      {"labels", DType::kI32, {kMost}},
                      {"time", DType::kI32, {}},
                      {"count", DType::kI32, {}}},
                     join);
}

Output reader(Tower& tower, Output image, Output labels, Output time, Output count) {
  const Output x = reshape(swapaxes(image, 1, 2), {kUnknownSize, kTime, kColumns * kSide});
  const Output y = lstm(tower, "lstm", x,
                        {.hidden = kHidden, .layers = 2, .bidirectional = true, .lengths = time})
                       .y;
  const Output logits = dense(tower, "head", y, {.units = kClasses});
  const CtcBestPath read = ctc_best_path(logits, time, {.blank = kBlank});
  const Output mistakes = edit_distance(read.labels, read.lengths, labels, count);
  tower.output("read", read.labels);
  tower.metric("accuracy", reduce_mean(cast(equal(mistakes, 0), DType::kF32)));  // of whole lines
  tower.metric("label_errors", metrics::ratio(mistakes, count));
  return ctc_loss(logits, labels, time, count, {.blank = kBlank});
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = reader,
                .data = lines,
                .optimizer = adam(2e-3),
                .global_batch_size = 32,
                .epochs = 2});
}
