#include "belfry/trainers/runs/hash_log.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/output_watch.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

constexpr std::string_view kOfGradient = "the gradient of ";

// Of the model's values: the hash that is documented. Of what is compared within one version, which
// may be many times as much, the check hash.
NamedHashes hashes_of(std::vector<NamedTensor> tensors) {
  NamedHashes hashes;
  for (NamedTensor& tensor : tensors) {
    std::string name = tensor.name;
    hashes.emplace_back(name, hash_tensors({std::move(tensor)}));
  }
  return hashes;
}

NamedHashes check_hashes_of(const std::vector<NamedTensor>& tensors) {
  NamedHashes hashes;
  for (const NamedTensor& tensor : tensors)
    hashes.emplace_back(tensor.name, hex(check_hash(tensor.value), 16));
  return hashes;
}

JsonValue to_json(const NamedHashes& hashes) {
  JsonValue json = JsonValue::object();
  for (const auto& [name, hash] : hashes) json.set(name, hash);
  return json;
}

NamedHashes hashes_in(const JsonValue& json) {
  NamedHashes hashes;
  for (const auto& [name, hash] : json.members()) hashes.emplace_back(name, hash.text());
  return hashes;
}

JsonValue to_json(const std::vector<StepHashes::OfTower>& towers) {
  JsonValue json = JsonValue::array();
  for (const StepHashes::OfTower& tower : towers) {
    JsonValue one = JsonValue::object()
                        .set("tower", tower.tower)
                        .set("rank", tower.rank)
                        .set("host", tower.host)
                        .set("gradients", to_json(tower.gradients));
    if (!tower.ops.empty()) one.set("ops", tower.ops);
    json.push(std::move(one));
  }
  return json;
}

// The places of names in their order, those of equal names as they are.
std::vector<std::size_t> order_of(const std::vector<std::string>& names) {
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) -> const std::string& { return names[i]; });
  return order;
}

void add_ops(const OutputHashes::Named& ops, StepHashes::OfTower& tower) {
  for (const auto& [name, hash] : ops) tower.op_names.push_back(name);
  for (const std::size_t i : order_of(tower.op_names))
    tower.ops += hex(ops[i].second & 0xffffffff, StepHashes::kOpDigits);
}

std::vector<StepHashes::OfTower> towers_in(const JsonValue& json) {
  std::vector<StepHashes::OfTower> towers;
  for (const JsonValue& tower : json.items())
    towers.push_back({.tower = tower.at("tower").integer(),
                      .rank = static_cast<int>(tower.at("rank").integer()),
                      .host = tower.at("host").text(),
                      .gradients = hashes_in(tower.at("gradients")),
                      .ops = tower.find("ops") ? tower.at("ops").text() : ""});
  return towers;
}

std::vector<StepHashes::OfTower> own_contributions(Trainer& trainer) {
  Processes* const processes = trainer.built().processes();
  std::vector<StepHashes::OfTower> own;
  for (const TowerContribution& contribution : trainer.record().contributions())
    own.push_back({.tower = contribution.tower,
                   .rank = trainer.graph().process().rank,
                   .host = processes ? processes->host(processes->rank()) : "",
                   .gradients = check_hashes_of(contribution.gradients)});
  if (const OutputHashes* const hashes = trainer.record().op_hashes()) {
    const std::map<int, OutputHashes::Named> by_tower = hashes->by_tower();
    for (std::size_t t = 0; t < own.size(); ++t)
      if (const auto ops = by_tower.find(static_cast<int>(t)); ops != by_tower.end())
        add_ops(ops->second, own[t]);
  }
  return own;
}

// Of all processes, by tower.
std::vector<StepHashes::OfTower> contributions_of_all(Trainer& trainer) {
  std::vector<StepHashes::OfTower> own = own_contributions(trainer);
  Processes* const processes = trainer.built().processes();
  if (!processes) return own;
  std::vector<StepHashes::OfTower> all;
  for (const std::string& text : processes->gather(to_json(own).str()))
    for (StepHashes::OfTower& tower : towers_in(JsonValue::parse(text)))
      all.push_back(std::move(tower));
  return all;
}

// The text that the file had when it was opened. A run may add lines meanwhile.
std::string text_so_far(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  require<IoError>(file->size() <= kMostBytes, path, ": has ", file->size(),
                   " bytes, more than the ", kMostBytes, " that such a file may have");
  std::string text(file->size(), '\0');
  text.resize(file->read(std::as_writable_bytes(std::span(text))));
  return text;
}

bool is_of_gradient(const NamedHashes::value_type& hash) {
  return hash.first.starts_with(kOfGradient);
}

// What two runs compare, with names for people.
NamedHashes all_of(const StepHashes& step, bool with_contributions) {
  NamedHashes all;
  if (with_contributions)
    for (const StepHashes::OfTower& tower : step.contributions)
      for (const auto& [name, hash] : tower.gradients)
        all.emplace_back(cat("tower ", tower.tower, "'s gradient of ", name), hash);
  for (const auto& [name, hash] : step.gradients) all.emplace_back(cat(kOfGradient, name), hash);
  all.insert(all.end(), step.variables.begin(), step.variables.end());
  return all;
}

// Names that differ, or that only one of them has. If one run has hashes of no gradient, as when
// processes update parts, only variables count.
std::vector<std::string> differing(const StepHashes& one, const StepHashes& other) {
  const bool same_towers = one.contributions.size() == other.contributions.size();
  NamedHashes a = all_of(one, same_towers), b = all_of(other, same_towers);
  std::vector<std::string> names;
  if (one.gradients.empty() || other.gradients.empty()) {
    std::erase_if(a, is_of_gradient);
    std::erase_if(b, is_of_gradient);
  }
  for (const auto& variable : a)
    if (std::ranges::find(b, variable) == b.end()) names.push_back(variable.first);
  for (const auto& [name, hash] : b)
    if (std::ranges::find(a, name, &NamedHashes::value_type::first) == a.end())
      names.push_back(name);
  return names;
}

}  // namespace

JsonValue StepHashes::json(std::int64_t step) const {
  JsonValue json = JsonValue::object().set("step", step);
  if (!contributions.empty()) json.set("contributions", to_json(contributions));
  return json.set("gradients", to_json(gradients)).set("variables", to_json(variables));
}

StepHashes StepHashes::read(const JsonValue& json) {
  StepHashes step{
      .contributions = {}, .gradients = {}, .variables = hashes_in(json.at("variables"))};
  if (const JsonValue* const towers = json.find("contributions"))
    step.contributions = towers_in(*towers);
  if (const JsonValue* const gradients = json.find("gradients"))
    step.gradients = hashes_in(*gradients);
  return step;
}

std::string first_other_op(const StepHashes::OfTower& noted, const StepHashes::OfTower& computed) {
  if (noted.ops.size() != computed.ops.size()) return "";
  std::optional<std::size_t> first;
  const std::vector<std::size_t> order = order_of(computed.op_names);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto hash_in = [&](const std::string& ops) {
      return std::string_view(ops).substr(i * StepHashes::kOpDigits, StepHashes::kOpDigits);
    };
    if (hash_in(noted.ops) != hash_in(computed.ops))
      first = std::min(first.value_or(order[i]), order[i]);
  }
  return first ? computed.op_names[*first] : "";
}

StepHashes hashes_of_step(Trainer& trainer) {
  return {.contributions = contributions_of_all(trainer),
          .gradients = hashes_of(trainer.record().gradients()),
          .variables = hashes_of(read_state(trainer.session(), trainer.graph()))};
}

std::map<std::int64_t, StepHashes> noted_hashes(FileSystem& files, const std::string& path) {
  const bool is_run = files.target_kind(path) == FileKind::kDirectory;
  const std::string file = is_run ? cat(path, "/", kHashesFile) : path;
  if (!files.exists(file))
    throw NotFoundError(about_option("hash_every", file,
                                     ": no such file; a run writes it if it is asked to (",
                                     the_option("hash_every"), ")"));
  const std::string text = text_so_far(files, file);
  std::map<std::int64_t, StepHashes> steps;
  std::int64_t number = 0;
  // The last line may be half of one.
  for (const std::string_view line :
       split(std::string_view(text).substr(0, text.rfind('\n') + 1), '\n'))
    try {
      ++number;
      if (line.empty()) continue;
      const JsonValue json = JsonValue::parse(line);
      // Replaces that of a run that made this step before.
      steps[json.at("step").integer()] = StepHashes::read(json);
    } catch (const InvalidArgument& error) {
      throw IoError(cat(file, ": line ", number, " has no hashes: ", error.what()));
    }
  return steps;
}

HashLog::HashLog(FileSystem& files, std::string path, std::int64_t every, OnSaveError on_error)
    : HashLog(every) {
  file_.emplace(files, std::move(path), on_error);
}

HashLog::HashLog(std::int64_t every) : every_(every) {
  require(every >= 1, "hash_every is ", every, "; it must be at least 1");
}

void HashLog::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t steps = info.step + 1;
  if (steps % every_ != 0) return;
  if (file_)
    file_->add(hashes_of_step(trainer).json(steps).str() + "\n");
  else if (Processes* const processes = trainer.built().processes())
    processes->gather(to_json(own_contributions(trainer)).str());
}

Parting find_parting(const std::string& run_a, const std::string& run_b, FileSystem& files) {
  const auto a = noted_hashes(files, run_a), b = noted_hashes(files, run_b);
  Parting parting;
  for (const auto& [step, hashes] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    ++parting.compared;
    parting.variables = differing(hashes, other->second);
    if (!parting.variables.empty()) {
      parting.differs = step;
      return parting;
    }
    parting.equal = step;
  }
  require(parting.compared > 0, run_a, " and ", run_b,
          " have no step in common; give both runs the same hash_every");
  return parting;
}

}  // namespace belfry
