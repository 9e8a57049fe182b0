// The keys of members of a fingerprint that are written in one place and compared in another.
#pragma once
#include <string_view>

namespace belfry {

inline constexpr std::string_view kModel = "model";
inline constexpr std::string_view kOptimizerKind = "optimizer_kind";
inline constexpr std::string_view kRates = "rates";        // compared as far as both runs go
inline constexpr std::string_view kRatesOf = "rates of ";  // the same, of a loss after the first
inline constexpr std::string_view kGroupList = "group";
inline constexpr std::string_view kTrained = "trained";    // names of variables
inline constexpr std::string_view kUpdates = "optimizer";  // its name, and a hash
inline constexpr std::string_view kAverages = "averages";
inline constexpr std::string_view kCountedAverages = " counted";  // of averages

}  // namespace belfry
