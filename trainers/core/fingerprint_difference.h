// Reads fingerprints (run_fingerprint.h), and says how two of them differ.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

// The member `key`: a text as it is, any other value as JSON; "" if there is none.
std::string member_text(const JsonValue& json, std::string_view key);

struct FingerprintMember {
  std::string key, words;
  // What stands for it in a fingerprint that lacks it; none: there it is not compared. Older
  // versions had fewer options, and left out some that were off.
  std::optional<std::string> otherwise;
};

// The members of a fingerprint, in the order in which they are compared.
std::vector<FingerprintMember> members_of(const JsonValue& fingerprint);

// "the seed was 1 and is now 2": the first member that differs; "" for none.
std::string first_difference(const JsonValue& before, const JsonValue& now);
// The first difference among the members that decide which averages and slots exist; "" for none.
std::string difference_of_extra_variables(const JsonValue& before, const JsonValue& now);

}  // namespace belfry
