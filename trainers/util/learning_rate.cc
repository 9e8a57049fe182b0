#include "belfry/trainers/util/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

constexpr std::string_view kSampled = "function of ";  // "function of 9 steps: 0=0.1, 3=0.05"

// The steps at which samples are taken. Whether an early step is among them depends only on the
// steps per epoch, so that runs of different lengths can be compared.
std::set<std::int64_t> sampled_steps(const StepInfo& run) {
  constexpr std::int64_t kEpochs = 128, kDensity = 8;
  std::set<std::int64_t> steps;
  for (std::int64_t s = 0; s < run.total_steps; s += std::max<std::int64_t>(1, s / kDensity))
    steps.insert(s);
  for (std::int64_t e = 0; e < kEpochs && e * run.steps_per_epoch < run.total_steps; ++e)
    steps.insert(e * run.steps_per_epoch);
  return steps;
}

StepInfo at_step(const StepInfo& run, std::int64_t step) {
  const std::int64_t epoch = run.steps_per_epoch > 0 ? step / run.steps_per_epoch : 0;
  return {.step = step,
          .steps_per_epoch = run.steps_per_epoch,
          .epoch = static_cast<int>(epoch),
          .total_steps = run.total_steps};
}

// A function as LearningRate::str(run) describes it: the first step of each value.
struct Samples {
  std::int64_t steps = 0;
  std::vector<std::pair<std::int64_t, std::string>> values;
};

std::optional<Samples> parse_samples(std::string_view text) try {
  if (!text.starts_with(kSampled)) return {};
  text.remove_prefix(kSampled.size());
  const std::size_t space = text.find(' '), colon = text.find(": ");
  if (colon == text.npos) return {};
  Samples samples{.steps = parse_number<std::int64_t>("", text.substr(0, space))};
  for (std::string_view item : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = item.find('=');
    if (equals == item.npos) return {};
    samples.values.emplace_back(parse_number<std::int64_t>("", item.substr(1, equals - 1)),
                                item.substr(equals + 1));
  }
  return samples;
} catch (const FlagError&) {
  return {};
}

void cut_samples(Samples& samples, std::int64_t steps) {
  std::erase_if(samples.values, [&](const auto& value) { return value.first >= steps; });
}

}  // namespace

double LearningRate::at(const StepInfo& info) const {
  require(given_,
          "the learning rate is an empty function; give a number or a function of StepInfo");
  StepInfo timeless = info;
  timeless.seconds = 0;
  const double value = schedule_ ? naming_part("the function of the learning rate",
                                               [&] { return schedule_(timeless); })
                                 : value_;
  require(std::isfinite(value) && value >= 0, "the learning rate",
          schedule_ ? cat(" of step ", info.step) : "", " is ", value,
          "; it must be finite and not negative");
  return value;
}

std::string LearningRate::str() const {
  if (is_constant()) return cat(value_);
  return text_.empty() ? "a function of the program's" : text_;
}

std::string LearningRate::str(const StepInfo& run) const {
  return is_described() ? str() : sampled(run);
}

std::string LearningRate::sampled(const StepInfo& run) const {
  std::vector<std::string> values;
  std::optional<double> last;
  for (const std::int64_t step : sampled_steps(run))
    if (const double value = at(at_step(run, step)); value != last) {
      values.push_back(cat(step, "=", value));
      last = value;
    }
  return cat(kSampled, run.total_steps, " steps: ", join(values));
}

bool same_rates(std::string_view one, std::string_view other) {
  if (one == other) return true;
  std::optional<Samples> a = parse_samples(one), b = parse_samples(other);
  if (!a || !b) return false;
  const std::int64_t both = std::min(a->steps, b->steps);
  cut_samples(*a, both);
  cut_samples(*b, both);
  return a->values == b->values;
}

bool depends_on_length(const LearningRate& rate, const StepInfo& run, std::int64_t total,
                       std::int64_t steps) {
  StepInfo other = run, first = run;
  other.total_steps = total;
  first.total_steps = std::min({steps, total, run.total_steps});
  return std::ranges::any_of(sampled_steps(first), [&](std::int64_t step) {
    return rate.at(at_step(run, step)) != rate.at(at_step(other, step));
  });
}

LearningRate warm_up(LearningRate rate, std::int64_t steps) {
  require(steps >= 0, "a warm-up of ", steps, " steps; it takes 0 or more");
  if (steps <= 1) return rate;
  const std::string text =
      rate.is_described() ? cat(rate.str(), ", warm-up of ", steps, " steps") : "";
  return LearningRate(
      [rate = std::move(rate), steps](const StepInfo& info) {
        const double value = rate.at(info);
        if (info.step >= steps) return value;
        return value * (static_cast<double>(info.step + 1) / static_cast<double>(steps));
      },
      text);
}

}  // namespace belfry
