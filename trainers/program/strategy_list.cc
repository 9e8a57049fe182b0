#include "belfry/trainers/program/strategy_list.h"

#include <algorithm>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

StrategyList parse_strategies(const std::string& text) {
  StrategyList list;
  for (const std::string_view part : split(text, ',')) {
    const std::string name = underscores_in_names(std::string(part));
    if (name == "all")
      list.all = true;
    else
      as_flag("--strategies", [&] { return parse_all_reduce_spec(name); });
    for (std::string& each : name == "all" ? strategy_names() : std::vector{name}) {
      require<FlagError>(std::ranges::find(list.names, each) == list.names.end(),
                         "--strategies=", text, ": ", each, " is there twice");
      list.automatic = list.automatic || each == "auto";
      list.names.push_back(std::move(each));
    }
  }
  return list;
}

}  // namespace belfry
