#include "belfry/trainers/flags/weight_flags.h"

#include "belfry/framework/base/text.h"

namespace belfry {

void add_weight_flags(FlagParser& parser, const std::string& prefix, WeightChoice& weights,
                      std::optional<CheckpointChoice>& checkpoint) {
  parser.add_parsed(cat("--", prefix, "weights"), weights, find_weight_choice,
                    "validated|raw|average",
                    "the weights as they were trained (raw), their moving averages, or what the "
                    "training evaluated: averages, if it kept some [validated]");
  add_checkpoint_flag(parser, prefix, checkpoint);
}

void add_checkpoint_flag(FlagParser& parser, const std::string& prefix,
                         std::optional<CheckpointChoice>& checkpoint) {
  parser.add_parsed(cat("--", prefix, "checkpoint"), checkpoint, parse_checkpoint_choice,
                    "best|latest|N",
                    "of a run: its best checkpoint, its latest, or that of step N [best, or latest "
                    "if the run has no best one]");
}

}  // namespace belfry
