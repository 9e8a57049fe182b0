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

// Lines of two to five digits side by side, at random distances. Lines of training are made anew in
// each epoch.
class Lines final : public Dataset {
 public:
  Lines(std::unique_ptr<Dataset> digits, std::int64_t size)
      : digits_(std::move(digits)), size_(size) {}

  std::vector<Field> signature() const override {
    return {{"image", DType::kF32, {kSide, kWidth}},
            {"labels", DType::kI32, {kMost}},
            {"time", DType::kI32, {}},
            {"count", DType::kI32, {}}};
  }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    gather_training({.epoch = -1}, indices, out);
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    for (std::size_t row = 0; row < indices.size(); ++row) write(pass, indices[row], row, out);
  }
  std::int64_t size() const override { return size_; }
  void check() const override { digits_->check(); }
  std::string describe() const override {
    return std::to_string(size_) + " lines of digits of " + digits_->describe();
  }
  std::vector<std::string> files() const override { return digits_->files(); }
  std::int64_t left_out() const override { return digits_->left_out(); }

 private:
  // Makes a line, and writes it into row `row` of the batch.
  void write(const DataPass& pass, std::int64_t line, std::size_t row,
             std::span<std::byte* const> out) const {
    std::uint64_t drawn = 0;
    const auto below = [&](std::int64_t bound) {  // a random number in [0, bound)
      const auto element = static_cast<std::uint64_t>(line) * (4 * kMost) + drawn++;
      const auto bits = kernels::mix(pass.seed, static_cast<std::uint64_t>(pass.epoch), element);
      return static_cast<std::int64_t>(static_cast<double>(bound) * kernels::unit(bits));
    };
    std::vector<std::int64_t> which(static_cast<std::size_t>(kFewest + below(kMost - kFewest + 1)));
    for (std::int64_t& digit : which) digit = below(digits_->size());
    const std::vector<Tensor> digits = gather_tensors(*digits_, which);
    const float* from = digits[0].data<float>().data();
    float* const image = reinterpret_cast<float*>(out[0]) + row * kSide * kWidth;
    std::fill_n(image, kSide * kWidth, 0.f);
    std::int64_t left = 0, width = 0;
    for (std::size_t i = 0; i < which.size(); ++i) {
      for (int y = 0; y < kSide; ++y)
        for (float* to = image + y * kWidth + left; to < image + y * kWidth + left + kSide; ++to)
          *to = std::max(*to, *from++);
      width = left + kSide;
      left += 18 + below(8);
    }
    std::int32_t* const labels = reinterpret_cast<std::int32_t*>(out[1]) + row * kMost;
    std::fill_n(labels, kMost, 0);
    std::ranges::copy(digits[1].data<std::int32_t>(), labels);
    reinterpret_cast<std::int32_t*>(out[2])[row] =
        static_cast<std::int32_t>((width + kColumns - 1) / kColumns);
    reinterpret_cast<std::int32_t*>(out[3])[row] = static_cast<std::int32_t>(which.size());
  }

  std::unique_ptr<Dataset> digits_;
  std::int64_t size_;
};

std::unique_ptr<Dataset> lines(const RunDirs& dirs, bool train) {
  return std::make_unique<Lines>(data::mnist(dirs, train), train ? 20000 : 2000);
}

// Labels as the classes of the likeliest path [n, time], without repetitions and blanks, and -1
// after the last one: [n, kMost + 1]. One more than a line has is a mistake; others are left out.
Output best_path(Output logits, Output time) {
  Graph& graph = logits.node().graph();
  const Output path = cast(argmax(logits, 2), DType::kI32);
  const Output before = pad(slice(path, {0, 0}, {-1, kTime - 1}), {{}, {1, 0}}, {.value = kBlank});
  const Output written =
      logical_and(less(arange(graph, 0, kTime, 1, DType::kI32), expand_dims(time, 1)),
                  logical_and(not_equal(path, kBlank), not_equal(path, before)));
  const Output number = cumsum(cast(written, DType::kI32), {.axis = 1});  // of the label, from 1
  const Output here =
      equal(expand_dims(where(written, number, 0), 2), arange(graph, 1, kMost + 2, 1, DType::kI32));
  return reduce_sum(where(here, expand_dims(path + 1, 2), 0), {1}) - 1;
}

// The share of lines that are read without a mistake.
Output right(Output read, Output labels, Output count) {
  const Output places = arange(labels.node().graph(), 0, kMost, 1, DType::kI32);
  const Output wanted =
      pad(where(less(places, expand_dims(count, 1)), labels, -1), {{}, {0, 1}}, {.value = -1});
  const Output mistakes = reduce_sum(cast(not_equal(read, wanted), DType::kI32), {1});
  return reduce_mean(cast(equal(mistakes, 0), DType::kF32));
}

Output reader(Tower& tower, Output image, Output labels, Output time, Output count) {
  const Output x = reshape(swapaxes(image, 1, 2), {kUnknownSize, kTime, kColumns * kSide});
  const Output y = lstm(tower, "lstm", x,
                        {.hidden = kHidden, .layers = 2, .bidirectional = true, .lengths = time})
                       .y;
  const Output logits = dense(tower, "head", y, {.units = kClasses});
  const Output read = best_path(logits, time);
  tower.output("read", read);
  tower.metric("accuracy", right(read, labels, count));
  return ctc_loss(logits, labels, time, count, {.blank = kBlank});
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = reader,
                .data = lines,
                .optimizer = adam(2e-3),
                .global_batch_size = 32,
                .epochs = 5});
}
