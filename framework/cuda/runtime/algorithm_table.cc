#include "belfry/framework/cuda/runtime/algorithm_table.h"

#include <limits>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/kernels/variants.h"

namespace belfry::cuda {
namespace {

constexpr int kVersion = 1;
constexpr const char* kVersionMember = "belfry_algorithms";
constexpr const char* kChoices = "choices";
constexpr const char* kVariants = "variants";

std::int64_t not_negative(const JsonValue& entry, const char* member, std::int64_t most) {
  const std::int64_t value = entry.at(member).integer();
  require(value >= 0 && value <= most, "\"", member, "\" is ", value);
  return value;
}

bool parse_bool(const JsonValue& value, std::string_view member) {
  const std::string word = value.str();
  require(word == "true" || word == "false", "\"", member, "\" is ", shown(word));
  return word == "true";
}

AlgorithmTable::Choice parse_choice(const JsonValue& entry) {
  const JsonValue& algorithm = entry.at("algorithm");
  if (algorithm.kind() == JsonValue::Kind::kNull) return {};
  return CudnnAlgorithm{.number = static_cast<int>(not_negative(
                            entry, "algorithm", std::numeric_limits<std::int32_t>::max())),
                        .workspace_bytes = not_negative(entry, "workspace_bytes",
                                                        std::numeric_limits<std::int64_t>::max()),
                        .deterministic = parse_bool(entry.at("deterministic"), "deterministic")};
}

}  // namespace

void AlgorithmTable::read(std::string_view text, const std::string& path) {
  std::map<std::string, Choice> read;
  std::map<std::string, bool> variants;
  std::string entry;
  try {
    const JsonValue file = JsonValue::parse(text);
    require(file.at(kVersionMember).integer() == kVersion, "\"", kVersionMember, "\" is not ",
            kVersion);
    for (const auto& [signature, choice] : file.at(kChoices).members()) {
      entry = cat(" of '", shown(signature, 400), "'");
      read[signature] = parse_choice(choice);
    }
    entry = "";
    for (const auto& [member, value] : file.members())
      require(member == kVersionMember || member == kChoices || member == kVariants, "\"",
              shown(member), "\" is no member of it");
    if (const JsonValue* const given = file.find(kVariants))
      for (const auto& [key, on] : given->members()) variants[key] = parse_bool(on, key);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat(path, ": no file of algorithms: ", error.what(), entry,
                              "; remove it, and it is written anew"));
  }
  try {
    Variant::set(variants);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat(path, ": \"", kVariants, "\": ", error.what()));
  }
  const std::lock_guard lock(mutex_);
  choices_.merge(read);
}

std::string AlgorithmTable::str() const {
  const std::lock_guard lock(mutex_);
  JsonValue choices = JsonValue::object();
  for (const auto& [signature, choice] : choices_) {
    JsonValue entry = JsonValue::object();
    if (choice)
      entry.set("algorithm", choice->number)
          .set("workspace_bytes", choice->workspace_bytes)
          .set("deterministic", choice->deterministic);
    else
      entry.set("algorithm", JsonValue());
    choices.set(signature, std::move(entry));
  }
  JsonValue file = JsonValue::object();
  file.set(kVersionMember, kVersion).set(kChoices, std::move(choices));
  JsonValue off = JsonValue::object();
  for (const auto& [key, on] : Variant::all())
    if (!on) off.set(key, false);
  if (!off.members().empty()) file.set(kVariants, std::move(off));
  return file.str(2) + "\n";
}

const AlgorithmTable::Choice* AlgorithmTable::find(const std::string& signature) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(signature);
  return found == choices_.end() ? nullptr : &found->second;
}

const AlgorithmTable::Choice& AlgorithmTable::add(const std::string& signature, Choice choice) {
  const std::lock_guard lock(mutex_);
  return choices_.emplace(signature, choice).first->second;
}

bool AlgorithmTable::first(const std::string& line) {
  const std::lock_guard lock(mutex_);
  return lines_.insert(line).second;
}

}  // namespace belfry::cuda
