#include "belfry/allreduce/prediction/choice.h"

#include <algorithm>
#include <cstdio>

#include "belfry/allreduce/prediction/tower_buffers.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"

namespace belfry {
namespace {

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", seconds * 1e3);
  return text;
}

// "collective, 4 MiB": a strategy, and its buckets unless there are none.
std::string title(const Prediction& prediction) {
  return cat(prediction.strategy,
             prediction.bucket_mb > 0 ? cat(", ", prediction.bucket_mb, " MiB") : "");
}

std::string line(const Prediction& prediction, std::size_t width) {
  std::string name = title(prediction);
  name.resize(std::max(name.size(), width), ' ');
  return cat("  ", name, " ",
             prediction.refusal.empty() ? milliseconds(prediction.seconds) : prediction.refusal,
             prediction.canonical ? "" : " (not canonical)", "\n");
}

// Fills in a prediction, and returns whether buckets of another size would make another plan.
bool predict(const std::vector<TensorType>& gradients, const std::vector<DeviceSpec>& devices,
             const MachineDescription& machine, const ChoiceOptions& options,
             Prediction& prediction) {
  const auto towers = static_cast<int>(devices.size());
  const std::unique_ptr<Strategy> strategy = make_strategy(prediction.strategy);
  prediction.canonical = strategy->canonical(towers);
  prediction.refusal = strategy->refusal(devices);
  if (!prediction.canonical && !options.any && prediction.refusal.empty())
    prediction.refusal = "left out";
  if (!prediction.refusal.empty()) return false;
  ReduceOptions how{.reduction = options.reduction, .packing = options.packing};
  how.packing.bucket_mb = prediction.bucket_mb;
  prediction.seconds =
      predict_reduction(*strategy, gradients, devices, machine, how, options.extent);
  return strategy->in_one_node() != nullptr;
}

}  // namespace

double predict_reduction(const Strategy& strategy, const std::vector<TensorType>& gradients,
                         const std::vector<DeviceSpec>& devices, const MachineDescription& machine,
                         const ReduceOptions& how, PlanExtent extent) {
  Graph graph;
  const GradientTable table(tower_buffers(graph, gradients, devices));
  const GradientTable sums = strategy.reduce(table, how);
  std::vector<Node*> writes;
  for (int t = 0; t < sums.towers(); ++t)
    for (int v = 0; v < sums.variables(); ++v)
      writes.push_back(&assign(table.at(t, v).variable, sums.at(t, v).value));
  SessionOptions options{.dry_run = true};
  for (const DeviceSpec& device : machine.devices) {
    int& count = options.device_count[device.type->str()];
    count = std::max(count, *device.index + 1);
  }
  // Without links the devices share one memory: they are logical GPUs of one GPU.
  if (machine.links.empty() && options.device_count.contains("GPU"))
    options.logical_gpus = options.device_count["GPU"];
  Session session(graph, options);
  return predict_seconds(*session.prepare({group(graph, writes)}).plan(), session.devices(),
                         machine, extent);
}

StrategyChoice choose_strategy(const std::vector<std::string>& strategies,
                               const std::vector<TensorType>& gradients,
                               const std::vector<DeviceSpec>& devices,
                               const MachineDescription& machine, ChoiceOptions options) {
  const auto towers = static_cast<int>(devices.size());
  StrategyChoice choice;
  for (const std::string& name : strategies) {
    bool alike = false;  // buckets of all sizes make one plan
    for (const double bucket_mb : options.buckets) {
      if (alike && bucket_mb > 0) continue;
      Prediction& prediction = choice.predictions.emplace_back(Prediction{name, bucket_mb});
      try {
        const bool sizes_matter = predict(gradients, devices, machine, options, prediction);
        alike = alike || (bucket_mb > 0 && !sizes_matter);
      } catch (const Error& error) {
        prediction.refusal = error.what();
      }
      if (!prediction.refusal.empty()) break;
    }
  }
  std::ranges::stable_sort(choice.predictions, [](const Prediction& a, const Prediction& b) {
    return a.refusal.empty() != b.refusal.empty() ? a.refusal.empty() : a.seconds < b.seconds;
  });
  require(!choice.predictions.empty() && choice.best().refusal.empty(), "no strategy can serve ",
          towers, " devices:\n", choice.str());
  return choice;
}

std::string StrategyChoice::str() const {
  std::string text;
  std::size_t width = 18;
  for (const Prediction& prediction : predictions)
    width = std::max(width, title(prediction).size());
  for (const Prediction& prediction : predictions) text += line(prediction, width);
  if (predictions.empty() || !best().refusal.empty()) return text;
  text += cat("auto: ", title(best()), ", predicted ", milliseconds(best().seconds));
  if (predictions.size() > 1 && predictions[1].refusal.empty()) {
    const Prediction& second = predictions[1];
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f", second.seconds / best().seconds);
    text += cat("; ", title(second), ", the next, takes ", ratio, " times as long");
  }
  return text + "\n";
}

}  // namespace belfry
