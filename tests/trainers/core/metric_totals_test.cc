// Metrics that are no means: sums over all samples, however these are divided.
#include "belfry/trainers/core/metric_totals.h"

#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error_origin.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/metrics.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace metric_totals_test {

constexpr std::int64_t kClasses = 7, kPixels = 4, kBatch = 24;
constexpr float kThreshold = 1 - 3e-7f;

// Predictions that the model reports as they are, so that no weight moves the metrics.
struct Samples {
  std::vector<float> logits, scores, prediction, truth;
  std::vector<std::int32_t> labels, binary;

  explicit Samples(std::int64_t count, double from = 0) {
    const auto value = [&](std::int64_t i, int k) {
      return static_cast<float>(std::sin(static_cast<double>(i * k) * 1.7 + k + from));
    };
    for (std::int64_t i = 0; i < count; ++i) {
      for (int c = 0; c < kClasses; ++c) logits.push_back(2 * value(i, 3 + c));
      labels.push_back(static_cast<std::int32_t>((i * i + 2 * i) % kClasses));
      // Some are equal, and all are close to 1.
      scores.push_back(1 - 6e-8f * static_cast<float>(i * 37 % 11));
      binary.push_back(value(i, 5) > 0.6f - 0.1f * static_cast<float>(i * 37 % 11) ? 1 : 0);
      for (int p = 0; p < kPixels; ++p) {
        prediction.push_back(value(i, 11 + p) * value(i, 11 + p));
        truth.push_back(value(i, 17 + p) > 0 ? 1.f : 0.f);
      }
    }
  }

  std::int64_t size() const { return std::ssize(labels); }
  std::unique_ptr<Dataset> data() const {
    using Source = TensorDataset::Source;
    return std::make_unique<TensorDataset>(
        std::vector<Source>{
            {"logits", Tensor({size(), kClasses}, logits), DType::kF32, {kClasses}},
            {"label", Tensor({size()}, labels), DType::kI32, {}},
            {"score", Tensor({size()}, scores), DType::kF32, {}},
            {"binary", Tensor({size()}, binary), DType::kI32, {}},
            {"prediction", Tensor({size(), kPixels}, prediction), DType::kF32, {kPixels}},
            {"truth", Tensor({size(), kPixels}, truth), DType::kF32, {kPixels}}},
        "predictions");
  }
};

Output reporting_model(Tower& tower, Output logits, Output label, Output score, Output binary,
                       Output prediction, Output truth) {
  using metrics::Average;
  const Output losses = sparse_softmax_cross_entropy(logits, label);
  tower.metric("macro_f1", metrics::f1(logits, label));
  tower.metric("weighted_f1", metrics::f1(logits, label, Average::kWeighted));
  tower.metric("micro_f1", metrics::f1(logits, label, Average::kMicro));
  tower.metric("precision", metrics::precision(logits, label));
  tower.metric("recall", metrics::recall(logits, label));
  tower.metric("top3", metrics::top_k(logits, label, 3));
  tower.metric("confusion", metrics::confusion_matrix(logits, label));
  tower.metric("binary_f1", metrics::binary_f1(score, binary, kThreshold));
  tower.metric("binary_precision", metrics::binary_precision(score, binary, kThreshold));
  tower.metric("binary_recall", metrics::binary_recall(score, binary, kThreshold));
  tower.metric("auc", metrics::auc(score, binary));
  tower.metric("dice", metrics::dice(prediction, truth));
  tower.metric("ratio", metrics::ratio(prediction, truth));
  tower.metric("error", metrics::root_mean_square(prediction - truth));
  tower.metric("perplexity", metrics::perplexity(losses));
  const Output y = cast(truth, DType::kF64), error = y - cast(prediction, DType::kF64);
  const auto sum = [](Output x) { return reshape(reduce_sum(x), {1}); };
  tower.metric(
      "r2", MetricSums{
                .sums = concat({sum(square(error)), sum(square(y)), sum(y), sum(y * 0.0 + 1.0)}, 0),
                .ends = {{"", [](std::span<const double> s) {
                            return 1 - s[0] / (s[1] - s[2] * s[2] / s[3]);
                          }}}});
  tower.metric("cross_entropy", reduce_mean(losses));  // a mean stays what it is
  const Output x = dense(tower, "fc", prediction, {.units = 1});
  return reduce_mean(square(x));
}

// The same by plain loops over the samples from `begin` to `end`.
class Expected {
 public:
  Expected(const Samples& samples, std::int64_t begin, std::int64_t end)
      : s_(samples), begin_(begin), end_(end) {}

  std::map<std::string, double> values() {
    of_classes();
    of_scores();
    of_pixels();
    return values_;
  }

 private:
  const float* row(std::int64_t i) const { return s_.logits.data() + i * kClasses; }

  void of_classes() {
    std::array<std::array<double, kClasses>, kClasses> n = {};
    double top3 = 0, loss = 0;
    for (std::int64_t i = begin_; i < end_; ++i) {
      const std::int32_t label = s_.labels[static_cast<std::size_t>(i)];
      std::size_t predicted = 0;
      int above = 0;
      double total = 0;
      for (std::size_t c = 0; c < kClasses; ++c) {
        if (row(i)[c] > row(i)[predicted]) predicted = c;
        above += row(i)[c] > row(i)[label] ? 1 : 0;
        total += std::exp(static_cast<double>(row(i)[c]));
      }
      n[static_cast<std::size_t>(label)][predicted] += 1;
      top3 += above < 3 ? 1 : 0;
      loss += std::log(total) - static_cast<double>(row(i)[label]);
    }
    const auto all = static_cast<double>(end_ - begin_);
    double macro = 0, weighted = 0, precision = 0, recall = 0, right = 0, classes = 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      double labels = 0, predictions = 0;
      for (std::size_t d = 0; d < kClasses; ++d) {
        labels += n[c][d];
        predictions += n[d][c];
        values_["confusion_" + std::to_string(c) + "_" + std::to_string(d)] = n[c][d];
      }
      if (labels + predictions == 0) continue;
      const double f1 = 2 * n[c][c] / (labels + predictions);
      macro += f1;
      weighted += f1 * labels / all;
      precision += predictions > 0 ? n[c][c] / predictions : 0;
      recall += labels > 0 ? n[c][c] / labels : 0;
      right += n[c][c];
      classes += 1;
    }
    values_["macro_f1"] = macro / classes;
    values_["weighted_f1"] = weighted;
    values_["micro_f1"] = right / all;
    values_["precision"] = precision / classes;
    values_["recall"] = recall / classes;
    values_["top3"] = top3 / all;
    values_["cross_entropy"] = loss / all;
    values_["perplexity"] = std::exp(loss / all);
  }

  void of_scores() {
    double right = 0, ones = 0, predicted = 0, ordered = 0, pairs = 0;
    for (auto i = static_cast<std::size_t>(begin_); i < static_cast<std::size_t>(end_); ++i) {
      const bool positive = s_.scores[i] >= kThreshold;
      right += positive && s_.binary[i] == 1 ? 1 : 0;
      ones += s_.binary[i];
      predicted += positive ? 1 : 0;
      for (auto j = static_cast<std::size_t>(begin_); j < static_cast<std::size_t>(end_); ++j) {
        if (s_.binary[i] != 1 || s_.binary[j] != 0) continue;
        pairs += 1;
        ordered += s_.scores[i] > s_.scores[j] ? 1 : s_.scores[i] == s_.scores[j] ? 0.5 : 0;
      }
    }
    values_["binary_f1"] = 2 * right / (ones + predicted);
    values_["binary_precision"] = right / predicted;
    values_["binary_recall"] = right / ones;
    values_["auc"] = ordered / pairs;
  }

  void of_pixels() {
    double both = 0, x = 0, y = 0, errors = 0, spread = 0;
    for (std::int64_t i = begin_ * kPixels; i < end_ * kPixels; ++i) {
      const auto p = static_cast<double>(s_.prediction[static_cast<std::size_t>(i)]);
      const auto t = static_cast<double>(s_.truth[static_cast<std::size_t>(i)]);
      both += p * t;
      x += p;
      y += t;
      errors += (p - t) * (p - t);
    }
    const auto pixels = static_cast<double>((end_ - begin_) * kPixels);
    for (std::int64_t i = begin_ * kPixels; i < end_ * kPixels; ++i) {
      const double d = static_cast<double>(s_.truth[static_cast<std::size_t>(i)]) - y / pixels;
      spread += d * d;
    }
    values_["r2"] = 1 - errors / spread;
    values_["dice"] = 2 * both / (x + y);
    values_["ratio"] = x / y;
    values_["error"] = std::sqrt(errors / pixels);
  }

  const Samples& s_;
  std::int64_t begin_, end_;
  std::map<std::string, double> values_;
};

using Values = std::map<std::string, double>;

struct Reported {
  Values step, validation;
  std::vector<std::string> by_devices;
};

TrainerOptions options_of(int devices, Console& console,
                          const std::shared_ptr<Processes>& processes) {
  const int towers = devices * (processes ? processes->size() : 1);
  return {.model = reporting_model,
          .optimizer = sgd(0.1),
          .devices = cpus(devices),
          .batch_size = static_cast<int>(kBatch) / towers,
          .shards = 12,
          .epochs = 2,
          .callbacks = {std::make_shared<Evaluation>(console)},
          .session = {.threads = 1, .processes = processes}};
}

// The metrics of the second of two steps, which takes all training data, and of all tests.
Reported report(int devices, const std::shared_ptr<Processes>& processes = nullptr) {
  const auto train = Samples(kBatch).data(), test = Samples(53, 0.5).data();
  Console console(nullptr);
  const bool is_one = devices == 1 && !processes;
  Trainer trainer(find_trainer(is_one ? "simple" : "replicated"),
                  options_of(devices, console, processes), *train, test.get());
  trainer.train();
  Reported result{.by_devices = metrics_by_devices(trainer.built())};
  for (const NamedValue& value : trainer.record().step_metrics())
    if (value.name != "loss") result.step[value.name] = value.value;
  for (const NamedValue& value : trainer.record().set_metrics())
    if (value.name != "validation_loss")
      result.validation[value.name.substr(std::string("validation_").size())] = value.value;
  return result;
}

void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_NEAR(actual.at(name), value, tolerance) << name;
  }
}

TEST(MetricTotals, AreThoseOfALoopOverAllSamples) {
  const Reported one = report(1);
  expect_near(one.validation, Expected(Samples(53, 0.5), 0, 53).values(), 1e-6);
  expect_near(one.step, Expected(Samples(kBatch), 0, kBatch).values(), 1e-6);
}

TEST(MetricTotals, AreTheSameOnAnyNumberOfDevices) {
  const Reported one = report(1);
  for (const int devices : {2, 4}) {
    const Reported some = report(devices);
    EXPECT_EQ(some.step, one.step) << devices;
    EXPECT_EQ(some.validation, one.validation) << devices;
  }
  const Reported three = report(3);  // adds what rounds, such as losses, in another order
  expect_near(three.step, one.step, 1e-7);
  expect_near(three.validation, one.validation, 1e-7);
}

TEST(MetricTotals, AreTheSameInSeveralProcesses) {
  const Reported one = report(1);
  for (const int devices : {1, 2}) {
    std::mutex mutex;
    test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
      const Reported some = report(devices, processes);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(some.step, one.step) << devices;
      EXPECT_EQ(some.validation, one.validation) << devices;
    });
  }
}

TEST(MetricTotals, AreKnownNotToDependOnDevices) {
  EXPECT_THAT(report(2).by_devices, testing::IsEmpty());
}

// A step of several batches ends the sums of all of them.
TEST(MetricTotals, OfAStepCoverAllOfItsBatches) {
  const auto train = Samples(kBatch).data();
  Console console(nullptr);
  TrainerOptions options = options_of(2, console, nullptr);
  options.batch_size = 3;
  options.batches.gradient_accumulation_steps = 4;
  options.shards = 6;
  Trainer trainer(find_trainer("replicated"), std::move(options), *train);
  trainer.train();
  Values values;
  for (const NamedValue& value : trainer.record().step_metrics())
    if (value.name != "loss") values[value.name] = value.value;
  expect_near(values, Expected(Samples(kBatch), 0, kBatch).values(), 1e-6);
}

TEST(MetricTotals, NameTheMetricWhoseEndFails) {
  const auto data = smooth_data(8);
  const auto model = [](Tower& tower, Output x, Output y) {
    const auto fails = [](std::span<const double>) -> double { throw std::runtime_error("oops"); };
    tower.metric("sum", MetricSums{.sums = reduce_sum(x), .ends = {{"of_x", fails}}});
    return smooth_model(tower, x, y);
  };
  Trainer trainer(find_trainer("simple"), {.model = model, .optimizer = sgd(0.1), .batch_size = 8},
                  *data);
  try {
    trainer.train();
    FAIL() << "it did not fail";
  } catch (const std::exception& error) {
    EXPECT_THAT(error_text(fields_of(error)),
                testing::AllOf(testing::HasSubstr("oops"),
                               testing::HasSubstr("the end of the metric 'sum_of_x'")));
  }
}

// Adds up a metric of all steps.
struct AddUp : Callback {
  void after_step(Trainer& trainer, const StepInfo&) override { sum += trainer.metric("sum_of_x"); }
  double sum = 0;
};

// Sums that a program ends by itself. Towers share the last batch, of three samples.
TEST(MetricTotals, AddTowersOfDifferentNumbersOfSamples) {
  const auto data = smooth_data(7);
  const auto model = [](Tower& tower, Output x, Output y) {
    const auto first = [](std::span<const double> sums) { return sums[0]; };
    tower.metric("sum", MetricSums{.sums = reduce_sum(x), .ends = {{"of_x", first}}});
    return smooth_model(tower, x, y);
  };
  const auto adds = std::make_shared<AddUp>();
  Trainer trainer(find_trainer("replicated"),
                  {.model = model,
                   .optimizer = sgd(0.1),
                   .devices = cpus(2),
                   .batch_size = 2,
                   .batches = {.uneven = Uneven::kWeight},
                   .epochs = 1,
                   .callbacks = {adds}},
                  *data);
  trainer.train();
  double sum = 0;
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 4; ++j) sum += std::sin(static_cast<double>(7 * i + 3 * j + 1));
  EXPECT_NEAR(adds->sum, sum, 1e-12);
  EXPECT_EQ(trainer.steps(), 2);
}

}  // namespace metric_totals_test
}  // namespace belfry
