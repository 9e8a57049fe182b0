#include "belfry/allreduce/simulation/workload.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

void require_workload_members(const JsonValue& json, std::string_view what,
                              const std::vector<std::string>& known) {
  for (const auto& [name, value] : json.members())
    require(std::ranges::find(known, name) != known.end(), value.where(), what,
            " has an unknown member \"", shown(name), "\"", did_you_mean(name, known),
            " (members: ", join(known), ")");
}

double amount(const JsonValue& json, const char* name) {
  const JsonValue& member = json.at(name);
  const double value = member.number();
  require(std::isfinite(value) && value >= 0, member.where(), "\"", name,
          "\" of a workload must be at least 0, not ", value);
  return value;
}

double total_of_layers(const TrainingWorkload& work, double WorkloadLayer::*amount) {
  double sum = 0;
  for (const WorkloadLayer& layer : work.layers) sum += layer.*amount;
  return sum;
}

// The summary of a model, which counts a batch.
TrainingWorkload of_summary(const JsonValue& json, const std::string& name) {
  constexpr double kElement = 4, kFlopsOfMultiplyAdd = 2;
  const double batch = amount(json, "batch_size");
  require(batch >= 1, json.at("batch_size").where(), "a summary of no samples");
  TrainingWorkload work{.name = name, .sample = "sample"};
  for (const JsonValue& layer : json.at("layers").items())
    work.layers.push_back({layer.at("name").text(), amount(layer, "parameters"),
                           kFlopsOfMultiplyAdd * amount(layer, "multiply_adds") / batch,
                           amount(layer, "bytes") / kElement / batch});
  require(!work.layers.empty(), json.at("layers").where(), "a summary without layers");
  return work;
}

}  // namespace

double TrainingWorkload::parameters() const {
  return total_of_layers(*this, &WorkloadLayer::parameters);
}
double TrainingWorkload::flops() const { return total_of_layers(*this, &WorkloadLayer::flops); }
double TrainingWorkload::elements() const {
  return total_of_layers(*this, &WorkloadLayer::elements);
}

TrainingWorkload parse_workload(const JsonValue& json, const std::string& otherwise) {
  if (json.find("batch_size")) return of_summary(json, otherwise);
  require_workload_members(json, "a workload",
                           {"name", "made_by", "sample", "sample_bytes", "layers"});
  TrainingWorkload work{.name = json.at("name").text(),
                        .sample = json.at("sample").text(),
                        .sample_bytes = amount(json, "sample_bytes")};
  for (const JsonValue& layer : json.at("layers").items()) {
    require_workload_members(layer, "a layer", {"name", "parameters", "flops", "elements"});
    work.layers.push_back({layer.at("name").text(), amount(layer, "parameters"),
                           amount(layer, "flops"), amount(layer, "elements")});
  }
  require(!work.layers.empty(), json.at("layers").where(), "a workload without layers");
  return work;
}

}  // namespace belfry
