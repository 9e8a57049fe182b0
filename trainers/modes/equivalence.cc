#include "belfry/trainers/modes/equivalence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half_bits.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/callbacks/step_timer.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

// Places of floating-point numbers in their order; -0 comes just before +0.
template <class Bits>
std::uint64_t ulps(Bits a, Bits b, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto is_nan = [&](Bits x) { return static_cast<Bits>(x & ~kSign) > infinity; };
  if (is_nan(a) || is_nan(b))
    return is_nan(a) && is_nan(b) ? 0 : std::uint64_t{std::numeric_limits<Bits>::max()};
  const auto place = [&](Bits x) { return static_cast<Bits>(x & kSign ? ~x : x | kSign); };
  const Bits p = place(a), q = place(b);
  return p > q ? p - q : q - p;
}

template <class Bits, class F>
std::uint64_t largest(const Tensor& a, const Tensor& b, const F& distance) {
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < a.bytes(); i += sizeof(Bits)) {
    Bits x, y;
    std::memcpy(&x, a.raw() + i, sizeof x);
    std::memcpy(&y, b.raw() + i, sizeof y);
    most = std::max(most, distance(x, y));
  }
  return most;
}

template <class Bits>
std::uint64_t largest_ulps(const Tensor& a, const Tensor& b, Bits infinity) {
  return largest<Bits>(a, b, [&](Bits x, Bits y) { return ulps(x, y, infinity); });
}

template <class T>
std::uint64_t largest_difference(const Tensor& a, const Tensor& b) {
  return largest<T>(a, b, [](T x, T y) {
    const auto more = static_cast<std::uint64_t>(std::max(x, y));
    return more - static_cast<std::uint64_t>(std::min(x, y));
  });
}

void require_comparable(const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype() && a.shape() == b.shape(), "cannot compare ", name_of(a.dtype()),
          a.shape(), " with ", name_of(b.dtype()), b.shape());
}

// Halves, as the difference of the largest numbers is not finite.
template <class T>
double largest_relative(const Tensor& a, const Tensor& b) {
  double half_difference = 0, size = 0;
  for (std::size_t i = 0; i < a.bytes(); i += sizeof(T)) {
    T first, second;
    std::memcpy(&first, a.raw() + i, sizeof first);
    std::memcpy(&second, b.raw() + i, sizeof second);
    const auto x = static_cast<double>(kernels::Stored<T>::widen(first));
    const auto y = static_cast<double>(kernels::Stored<T>::widen(second));
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      return std::numeric_limits<double>::infinity();
    }
    half_difference = std::max(half_difference, std::abs(x / 2 - y / 2));
    size = std::max({size, std::abs(x), std::abs(y)});
  }
  return half_difference == 0 ? 0 : half_difference / size * 2;
}

}  // namespace

std::uint64_t max_ulp(const Tensor& a, const Tensor& b) {
  require_comparable(a, b);
  switch (a.dtype()) {
    case DType::kF16: return largest_ulps<std::uint16_t>(a, b, 0x7C00);
    case DType::kBF16: return largest_ulps<std::uint16_t>(a, b, 0x7F80);
    case DType::kF32: return largest_ulps<std::uint32_t>(a, b, 0x7F800000);
    case DType::kF64: return largest_ulps<std::uint64_t>(a, b, 0x7FF0000000000000);
    case DType::kI32: return largest_difference<std::int32_t>(a, b);
    case DType::kI64: return largest_difference<std::int64_t>(a, b);
    case DType::kU8:
    case DType::kBool: break;
  }
  return largest_difference<std::uint8_t>(a, b);
}

double max_relative(const Tensor& a, const Tensor& b) {
  require_comparable(a, b);
  const auto others = [](DType dtype, const auto& f) { return visit_any(dtype, f); };
  return kernels::visit_half_or(a.dtype(), others,
                                [&](auto type) { return largest_relative<decltype(type)>(a, b); });
}

namespace {

using Values = std::map<std::string, Tensor>;  // by logical name

Values values_of(Trainer& trainer) {
  Values values;
  for (auto& [name, value] : read_state(trainer.session(), trainer.graph()))
    values.emplace(std::move(name), std::move(value));
  return values;
}

void compare(const Values& values, const Values& reference, Equivalence::Entry& entry,
             Console* console) {
  require<InternalError>(values.size() == reference.size(), entry.mode.name(), " has ",
                         values.size(), " variables, the mode to compare with ", reference.size());
  for (const auto& [name, value] : values) {
    const auto other = reference.find(name);
    require<InternalError>(other != reference.end(), entry.mode.name(), " alone has variable ",
                           name);
    const Tensor& expected = other->second;
    entry.values.push_back({name, max_ulp(value, expected), max_relative(value, expected)});
    show_if_due(console, entry.mode.name(), ": compared ", entry.values.size(), "/", values.size(),
                " variables");
  }
}

// Bytes that cross devices in one step with full batches.
std::int64_t bytes_moved(const BuiltTraining& built) {
  std::int64_t sum = 0;
  for (const auto& [plan, runs] : built.plans_of_step())
    for (const TransferRecord& transfer : plan->transfers) sum += runs * transfer.bytes;
  return sum;
}

// Runs a mode; returns its final values, none if it was refused.
Values run(const TrainerOptions& options, const Dataset& train, Equivalence::Entry& entry) {
  const std::unique_ptr<Trainer> trainer = make_in_mode(entry.mode, options, train, entry.refusal);
  if (!trainer) return {};
  entry.canonical = is_canonical(entry.mode, trainer->built());
  const double began = seconds_now();
  trainer->train();
  entry.seconds = seconds_now() - began;
  for (const auto& [device, bytes] : trainer->session().peak_bytes()) entry.peak_bytes += bytes;
  entry.bytes_moved = bytes_moved(trainer->built());
  entry.differing_replicas = differing_replicas(trainer->session(), trainer->graph());
  entry.divergence = find_divergence(trainer->built(), trainer->record());
  return values_of(*trainer);
}

}  // namespace

Equivalence check_equivalence(const TrainerOptions& options, const Dataset& train,
                              std::int64_t steps, std::span<const Mode> modes, Console* console) {
  require(steps >= 1, "an equivalence needs at least one step, not ", steps);
  TrainerOptions common = options;
  common.on_trace = {};
  common.epochs = std::numeric_limits<int>::max();
  common.max_steps = steps;
  common.session.deterministic = true;
  common.on_nonfinite = OnNonfinite::kContinue;  // all modes make as many steps
  common.warn_of_loss = false;                   // the result has divergence, by mode
  Equivalence result{.steps = steps};
  Values reference;
  std::vector<std::pair<std::size_t, Values>> waiting;  // that wait for a reference
  for (const Mode& mode : modes) {
    Equivalence::Entry& entry = result.entries.emplace_back(
        Equivalence::Entry{.mode = mode, .canonical = mode.canonical(common.devices)});
    common.callbacks = {std::make_shared<StepTimer>(StepTimer::Options{
        .warmup = 0,
        .display_every = 0,
        .console = console,
        .what =
            cat("mode ", result.entries.size(), " of ", modes.size(), ": ", mode.name(), ": ")})};
    Values values = run(common, train, entry);
    if (!entry.refusal.empty()) continue;
    if (reference.empty() && entry.canonical) reference = values;
    if (reference.empty())
      waiting.emplace_back(result.entries.size() - 1, std::move(values));
    else
      compare(values, reference, entry, console);
  }
  if (reference.empty() && !waiting.empty()) reference = waiting.front().second;
  require(!reference.empty(), "no mode can train this: ",
          result.entries.empty() ? "there are none" : result.entries.front().refusal);
  for (const auto& [index, values] : waiting)
    compare(values, reference, result.entries[index], console);
  return result;
}

}  // namespace belfry
