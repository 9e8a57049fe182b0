#include "belfry/framework/cuda/runtime/algorithm_provider.h"

#include <algorithm>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

// The fastest of cuDNN's algorithms; none if our kernels are as fast, whose time comes last.
AlgorithmTable::Choice fastest(const std::string& what,
                               const std::vector<CudnnAlgorithm>& algorithms,
                               const std::vector<double>& seconds) {
  const auto least = std::min_element(seconds.begin(), seconds.end() - 1);
  if (*least == AlgorithmSource::kNever) {
    log_info(what, ": no algorithm of cuDNN serves, so kernels of Belfry compute it");
    return {};
  }
  log_info(what, ": ", *least * 1e3, " ms by cuDNN, ", seconds.back() * 1e3,
           " ms by kernels of Belfry");
  if (*least >= seconds.back()) return {};
  return algorithms[static_cast<std::size_t>(least - seconds.begin())];
}

}  // namespace

AlgorithmTable::Choice AlgorithmProvider::choose(const Convolution& convolution) {
  if (options_.deterministic) {
    for (const CudnnAlgorithm& algorithm : source_.ranked(convolution))
      if (algorithm.deterministic && fits(algorithm) && source_.convolves(convolution, algorithm))
        return algorithm;
  } else {
    for (const CudnnAlgorithm& algorithm : source_.measured(convolution))
      if (fits(algorithm)) return algorithm;
  }
  return {};
}

AlgorithmTable::Choice AlgorithmProvider::choose(const Attention& attention,
                                                 const MakeOwnKernel& ours) {
  std::vector<CudnnAlgorithm> algorithms = source_.ranked(attention);
  std::erase_if(algorithms, [&](const CudnnAlgorithm& algorithm) { return !fits(algorithm); });
  if (algorithms.empty()) return {};
  return fastest(attention.str(), algorithms, source_.seconds(attention, algorithms, ours()));
}

AlgorithmTable::Choice AlgorithmProvider::choose(const Recurrence& recurrence,
                                                 const MakeRecurrence& make) {
  std::vector<CudnnAlgorithm> algorithms = source_.ranked(recurrence);
  std::erase_if(algorithms, [&](const CudnnAlgorithm& algorithm) { return !fits(algorithm); });
  if (algorithms.empty()) return {};
  std::vector<RecurrenceKernels> kernels;
  for (const CudnnAlgorithm& algorithm : algorithms) kernels.push_back(make(algorithm));
  kernels.push_back(make({}));
  return fastest(recurrence.str(), algorithms, source_.seconds(recurrence, kernels));
}

AlgorithmTable::Choice AlgorithmProvider::kept(const std::string& what,
                                               const std::function<Choice()>& choose) {
  const std::string signature = cat(what, " on ", source_.machine());
  const Choice* choice = table_.find(signature);
  if (!choice) choice = &table_.add(signature, choose());
  require(!*choice || (*choice)->deterministic || !options_.deterministic, "algorithm ",
          *choice ? (*choice)->number : 0, " of ", signature,
          " was chosen for steps that need not repeat (", the_option("deterministic"),
          "), and does not; name another file (", the_option("algorithms"), ")");
  return *choice;
}

std::optional<CudnnAlgorithm> AlgorithmProvider::convolution(const Convolution& convolution) {
  const std::string what = convolution.str();
  const Choice choice = kept(what, [&] { return choose(convolution); });
  if (!choice)
    say_ours(what,
             cat("cuDNN has no ", options_.deterministic ? "deterministic " : "",
                 "algorithm for it in ", options_.most_workspace_bytes >> 20, " MiB of workspace"));
  return choice;
}

std::optional<CudnnAlgorithm> AlgorithmProvider::attention(const Attention& attention,
                                                           const MakeOwnKernel& ours) {
  if (options_.deterministic) return {};
  return kept(attention.str(), [&] { return choose(attention, ours); });
}

std::optional<CudnnAlgorithm> AlgorithmProvider::recurrence(const Recurrence& recurrence,
                                                            const MakeRecurrence& make) {
  if (options_.deterministic) return {};
  return kept(recurrence.str(), [&] { return choose(recurrence, make); });
}

bool AlgorithmProvider::pooling(const Pooling& pooling) {
  auto found = poolings_.find(pooling);
  if (found == poolings_.end()) found = poolings_.emplace(pooling, source_.pools(pooling)).first;
  if (!found->second) say_ours(pooling.str(), "cuDNN does not compute it");
  return found->second;
}

void AlgorithmProvider::say_ours(const std::string& what, const std::string& why) {
  if (table_.first(what)) log_info(what, ": computed by a plain kernel of Belfry; ", why);
}

}  // namespace belfry::cuda
