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

template <class Piece>
double total_of(const std::vector<Piece>& pieces, double Piece::*amount) {
  double sum = 0;
  for (const Piece& piece : pieces) sum += piece.*amount;
  return sum;
}

// The launches of a plan.
TrainingWorkload of_plan(const JsonValue& json, const std::string& name) {
  constexpr std::int64_t kMostSamples = 1 << 30;
  const std::int64_t batch = json.at("batch").integer();
  require(batch >= 1 && batch <= kMostSamples, json.at("batch").where(), "a plan for ", batch,
          " samples");
  TrainingWorkload work{.name = name,
                        .sample = "sample",
                        .sample_bytes = amount(json, "sample_bytes"),
                        .batch = static_cast<int>(batch),
                        .device_bytes = amount(json, "device_bytes")};
  for (const char* const list : {"launches", "after_sums"})
    for (const JsonValue& launch : json.at(list).items())
      work.launches.push_back({.name = launch.at("name").text(),
                               .after_sums = list == std::string_view("after_sums"),
                               .parameters = amount(launch, "parameters"),
                               .flops = amount(launch, "flops"),
                               .bytes = amount(launch, "bytes")});
  require(!work.launches.empty() && !work.launches[0].after_sums, json.at("launches").where(),
          "a plan without launches");
  return work;
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
  return total_of(layers, &WorkloadLayer::parameters) +
         total_of(launches, &WorkloadLaunch::parameters);
}
double TrainingWorkload::flops() const { return total_of(layers, &WorkloadLayer::flops); }
double TrainingWorkload::elements() const { return total_of(layers, &WorkloadLayer::elements); }

TrainingWorkload parse_workload(const JsonValue& json, const std::string& otherwise) {
  if (const JsonValue* const plan = json.find("work")) return of_plan(*plan, otherwise);
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

JsonValue to_json(const TrainingWorkload& work) {
  JsonValue launches = JsonValue::array(), after_sums = JsonValue::array();
  for (const WorkloadLaunch& launch : work.launches)
    (launch.after_sums ? after_sums : launches)
        .push(JsonValue::object()
                  .set("name", launch.name)
                  .set("parameters", launch.parameters)
                  .set("flops", launch.flops)
                  .set("bytes", launch.bytes));
  return JsonValue::object()
      .set("batch", work.batch)
      .set("sample_bytes", work.sample_bytes)
      .set("device_bytes", work.device_bytes)
      .set("launches", std::move(launches))
      .set("after_sums", std::move(after_sums));
}

}  // namespace belfry
