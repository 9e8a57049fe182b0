#include "belfry/trainers/runs/replay_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {
namespace {
namespace replay_check_file {

// The names whose hashes differ, in the order of the graph.
std::vector<std::string> differing(const NamedHashes& noted, const NamedHashes& computed) {
  std::vector<std::string> names;
  for (const auto& [name, hash] : noted) {
    const auto other = std::ranges::find(computed, name, &NamedHashes::value_type::first);
    if (other != computed.end() && other->second != hash) names.push_back(name);
  }
  return names;
}

std::string rank_of(const StepHashes::OfTower& tower) {
  return cat("rank ", tower.rank, tower.host.empty() ? "" : cat(" on ", tower.host));
}

// What a tower's wrong gradients say about the place. A backward pass begins at the last layers.
std::string place_of(const std::vector<std::string>& names, std::size_t all) {
  if (names.size() == all)
    return "all of its gradients differ, so its rows, its weights or its forward pass were wrong, "
           "or its backward pass from the loss on";
  return cat(
      "its other gradients are equal, so its forward pass was right, and its backward pass "
      "went wrong at '",
      names.back(), "'");
}

// Fewer processes may have had fewer towers, whose contributions are other ones.
bool has_same_towers(const StepHashes& noted, const StepHashes& computed) {
  return !noted.contributions.empty() &&
         noted.contributions.size() == computed.contributions.size();
}

// Text for people about contributions that differ; "" if none do.
std::string of_contributions(const StepHashes& noted, const StepHashes& computed, std::int64_t step,
                             std::int64_t equal) {
  if (!has_same_towers(noted, computed)) return "";
  std::vector<std::string> texts;
  std::set<int> ranks, wrong;
  for (std::size_t t = 0; t < noted.contributions.size(); ++t) {
    const StepHashes::OfTower& tower = noted.contributions[t];
    ranks.insert(tower.rank);
    const std::vector<std::string> names =
        differing(tower.gradients, computed.contributions[t].gradients);
    if (names.empty()) continue;
    wrong.insert(tower.rank);
    texts.push_back(cat(rank_of(tower), " contributed other gradients (tower ", tower.tower,
                        "): of ", some_names(names), "; ",
                        place_of(names, tower.gradients.size())));
    if (const std::string op = first_other_op(tower, computed.contributions[t]); !op.empty())
      texts.back() += cat("; the first op that computed otherwise is ", op);
  }
  if (texts.empty()) return "";
  std::string text = cat("step ", step, ": ", join(texts, "; "));
  if (equal + 1 < step)
    text += cat("; the steps between ", equal,
                ", which is equal, and this one are not noted, so "
                "what went wrong may have been in one of them (",
                the_option("hash_every"), "=1 notes all)");
  else if (ranks.size() > 1 && wrong == ranks)
    text += "; all ranks had the same wrong weights or data, or this replay is wrong";
  return text;
}

bool has_several_ranks(const std::map<std::int64_t, StepHashes>& steps) {
  return std::ranges::any_of(steps, [](const auto& step) {
    return std::ranges::any_of(step.second.contributions,
                               [](const StepHashes::OfTower& tower) { return tower.rank > 0; });
  });
}

}  // namespace replay_check_file
}  // namespace

std::string difference_of_step(const StepHashes& noted, const StepHashes& computed,
                               std::int64_t step, std::int64_t equal, std::int64_t batches) {
  using namespace replay_check_file;
  if (std::string text = of_contributions(noted, computed, step, equal); !text.empty()) return text;
  std::string of_ranks;
  if (has_same_towers(noted, computed))
    of_ranks = batches == 1
                   ? ", though all ranks contributed the right ones: their sum went wrong, or a "
                     "message of it"
                   : cat(", though the last of its ", batches,
                         " batches was right in all ranks: an earlier one went wrong, or the sum");
  const std::vector<std::string> gradients = differing(noted.gradients, computed.gradients),
                                 variables = differing(noted.variables, computed.variables);
  if (!gradients.empty())
    return cat("step ", step, ": the combined gradient of ", some_names(gradients), " differs",
               of_ranks);
  if (!variables.empty())
    return cat("step ", step, ": ", some_names(variables), " of rank 0 ",
               variables.size() == 1 ? "differs" : "differ", " after the step",
               noted.gradients.empty() ? ""
                                       : ", though the combined gradients are equal: the update "
                                         "went wrong, or the memory of these variables",
               equal + 1 < step ? cat(", since step ", equal) : "");
  return "";
}

ReplayCheck::ReplayCheck(const std::string& run, std::int64_t first, std::int64_t last)
    : run_(run),
      last_(last),
      noted_(noted_hashes(local_file_system(), run)),
      sources_(inspect_checkpoint(latest_checkpoint_of(run)).extra),
      equal_(first) {
  std::erase_if(noted_, [&](const auto& step) { return step.first <= first || step.first > last; });
  require(!noted_.empty(), run, " has noted no step after ", first, " up to ", last,
          "; a run notes every step if it is asked to (", the_option("hash_every"), "=1)");
}

void ReplayCheck::check(Trainer& trainer) const {
  using namespace replay_check_file;
  const JsonValue now = bit_sources(trainer.built());
  std::string why = why_other_bits(sources_, now);
  for (const JsonValue* const sources : {&sources_, &now})
    if (why.empty()) why = member_text(*sources, "no_bits_twice");
  // Such sums depend on which towers a process has.
  if (const std::string sums = member_text(sources_, "sums");
      why.empty() && !sums.empty() && has_several_ranks(noted_))
    why = cat("several processes added gradients by ", sums);
  if (why.empty()) why = member_text(sources_, "earlier_bits");
  if (const JsonValue* const run = sources_.find("identity"); why.empty() && run)
    why = first_difference(*run, trainer.record().fingerprint());
  require(why.empty(), "the steps of ", run_,
          " cannot be computed again with the same bits: ", why);
  require(last_ <= trainer.progress().total_steps(), "step ", last_, " is after the last step, ",
          trainer.progress().total_steps());
}

void ReplayCheck::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t step = info.step + 1;
  steps_ = step;
  if (const auto noted = noted_.find(step); noted != noted_.end()) {
    const StepHashes computed = hashes_of_step(trainer);
    const std::string text = difference_of_step(noted->second, computed, step, equal_,
                                                trainer.built().batches().batches_per_step());
    if (!text.empty()) throw CorruptionError(text);
    towers_ = replay_check_file::has_same_towers(noted->second, computed)
                  ? computed.contributions.size()
                  : 0;
    equal_ = step;
    ++compared_;
  }
  if (step >= last_) trainer.stop();
}

std::string ReplayCheck::outcome() const {
  require(steps_ >= last_, "the replay ended after step ", steps_, ", before step ", last_);
  const StepHashes& noted = noted_.rbegin()->second;
  return cat("equal: ", compared_, compared_ == 1 ? " step" : " steps", " that ", run_,
             " has noted, the last is ", equal_, ": ",
             towers_ == 0 ? "" : cat("the gradients of ", towers_, " towers, "),
             noted.gradients.empty() ? "" : "combined gradients, ", "variables and slots");
}

}  // namespace belfry
