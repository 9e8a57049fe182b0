#include "belfry/trainers/core/fingerprint_difference.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/fingerprint_keys_impl.h"
#include "belfry/trainers/core/option_rows.h"

namespace belfry {
namespace {

// The parts of a fingerprint that are no options, and their names for people.
constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"global_batch", "the global batch"},
    {kOptimizerKind, "the optimizer"},
    {kRates, "the learning rate"},
    {kAverages, "the moving average of weights (moving_average)"},
    {"samples", "the number of training samples"},
    {"fields", "the fields of the training data"},
    {"buckets", "the lengths of batches (bucket_by_length)"},
    {"files", "the training data"},
    {"checksum", "the training data"},
    {"weight_decay", "the weight decay"},
    {kGroupList, "the list of groups of variables (group)"},
    {kTrained, "the set of trained variables"},
    {kUpdates, "the optimizer's updates (their ops or options)"},
    {"losses", "how the losses are trained"},
    {kModel, "the model's graph (its ops, options or shapes)"}};

std::string fingerprint_value_text(std::string_view key, const std::string& value) {
  if (value.empty()) return "none";
  if (key != kAverages || !value.ends_with(kCountedAverages)) return shown(value);
  return cat(shown(value.substr(0, value.size() - kCountedAverages.size())),
             " with moving_average_warmup");
}

// Names one variable that only one of the two runs trained; "" for none.
std::string other_training(const JsonValue& before, const JsonValue& now) {
  const auto names_in = [](const JsonValue& fingerprint) {
    std::set<std::string> names;
    for (const JsonValue& name : fingerprint.at(kTrained).items()) names.insert(name.text());
    return names;
  };
  const std::set<std::string> then = names_in(before), current = names_in(now);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(then, current, std::back_inserter(differing));
  if (differing.empty()) return "";
  return cat("the set of trained variables has changed: '", shown(differing[0]), "' was ",
             then.contains(differing[0]) ? "trained, and is not now" : "not trained, and is now",
             " (VariableOptions::trainable, which a layer or a VariableGetter may have set)");
}

std::string text_of_member(const JsonValue& fingerprint, const FingerprintMember& member) {
  return fingerprint.find(member.key) ? member_text(fingerprint, member.key)
                                      : member.otherwise.value_or("");
}

// Older runs do not say what they trained. Those of another model have other variables.
std::string difference_in(const FingerprintMember& member, const JsonValue& before,
                          const JsonValue& now) {
  const std::string& key = member.key;
  if (!member.otherwise && !before.find(key)) return "";
  const std::string then = text_of_member(before, member), current = text_of_member(now, member);
  const bool is_rate = key == kRates || key.starts_with(kRatesOf);
  if (then == current || (is_rate && same_rates(then, current))) return "";
  if (key != kTrained)
    return cat(member.words, " was ", fingerprint_value_text(key, then), " and is now ",
               fingerprint_value_text(key, current));
  const bool comparable = !then.empty() && member_text(before, kModel) == member_text(now, kModel);
  return comparable ? other_training(before, now) : "";
}

}  // namespace

std::vector<FingerprintMember> members_of(const JsonValue& fingerprint) {
  std::vector<FingerprintMember> members;
  for (const Option<TrainerOptions>& row : trainer_option_rows())
    if (is_in_fingerprint(row) && row.value)
      members.push_back({row.fingerprint_key(), row.in_words(), text_of(row.value({}))});
  const auto is_listed = [&](const std::string& key) {
    return std::ranges::find(members, key, &FingerprintMember::key) != members.end() ||
           std::ranges::find(kParts, key, &std::pair<std::string_view, std::string_view>::first) !=
               std::end(kParts);
  };
  for (const auto& [part, words] : kParts) {
    if (part ==
        kUpdates)  // which the options of the optimizer explain; and a trainer's own options
      for (const auto& [key, value] : fingerprint.members())
        if (!is_listed(key))
          members.push_back({key,
                             key.starts_with(kRatesOf)
                                 ? cat("the learning rate of ", key.substr(kRatesOf.size()))
                                 : cat("the option ", key),
                             std::nullopt});
    const bool is_new = part == kOptimizerKind;
    members.push_back({std::string(part), std::string(words),
                       is_new ? std::nullopt : std::optional<std::string>("")});
  }
  return members;
}

std::string member_text(const JsonValue& json, std::string_view key) {
  const JsonValue* const value = json.find(key);
  return !value ? "" : value->kind() == JsonValue::Kind::kString ? value->text() : value->str();
}

std::string first_difference(const JsonValue& before, const JsonValue& now) {
  for (const FingerprintMember& member : members_of(now))
    if (std::string text = difference_in(member, before, now); !text.empty()) return text;
  return "";
}

std::string difference_of_extra_variables(const JsonValue& before, const JsonValue& now) {
  std::string groups;  // those that freeze decide what is trained
  for (const FingerprintMember& member : members_of(now)) {
    const std::string& key = member.key;
    if (key == kGroupList) groups = difference_in(member, before, now);
    if (key != kOptimizerKind && key != kAverages && key != kTrained) continue;
    const std::string text = difference_in(member, before, now);
    if (!text.empty()) return key == kTrained && !groups.empty() ? groups : text;
  }
  return "";
}

}  // namespace belfry
