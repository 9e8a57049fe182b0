// What the files of rows share.
#pragma once
#include <limits>

#include "belfry/trainers/core/option_rows.h"

namespace belfry {

inline constexpr int kMostOfOption = std::numeric_limits<int>::max();

inline constexpr auto aggregation_in = [](auto& options) -> auto& { return options.aggregation; };
inline constexpr auto session_in = [](auto& options) -> auto& { return options.session; };

inline Option<TrainerOptions> of_aggregation(const Option<AggregationOptions>& option) {
  return of_part<TrainerOptions>(option, aggregation_in);
}

inline Option<TrainerOptions> of_session(const Option<SessionOptions>& option) {
  return of_part<TrainerOptions>(option, session_in);
}

// Whether towers run freely: `async=free`.
bool is_free_running(const TrainerOptions& options, const TrainerFacts& kind);

}  // namespace belfry
