#include "belfry/trainers/runs/contribution_check.h"

#include <algorithm>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/trainers/core/equal_processes.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {
namespace contribution_check_file {

constexpr char kOption[] = "check_contribution_every";
constexpr std::size_t kDigits = 16;

// By tower and variable.
using TowerHashes = std::vector<std::vector<std::uint64_t>>;

std::string text_of(const TowerHashes& towers) {
  std::string text;
  for (const std::vector<std::uint64_t>& tower : towers)
    for (const std::uint64_t hash : tower) text += hex(hash, kDigits);
  return text;
}

int next_rank(const BuiltTraining& built) {
  const ProcessPlace place = built.graph().process();
  return (place.rank + 1) % place.size;
}

TowerSpan towers_of_next(const BuiltTraining& built) {
  const auto towers = std::ssize(built.options().devices);
  return {next_rank(built) * towers, towers};
}

// The last batch of the step to come.
BatchPlan::Position last_batch(const Trainer& trainer) {
  BatchPlan::Position position = trainer.progress().next_batch();
  position.batch += trainer.built().batches().batches_per_step() - 1;
  return position;
}

std::size_t form_of_step(const Trainer& trainer) {
  return trainer.built().batches().form_of(last_batch(trainer).batch);
}

bool is_synchronised(const Graph& graph) {
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (&graph.node(id).op() == &kBatchStatistics) return true;
  return false;
}

// A random op without samples draws other numbers in each tower.
const Node* random_by_tower(const BuiltTraining& built) {
  for (const std::shared_ptr<const Plan>& plan : built.plans())
    for (const PlanNode& node : plan->nodes)
      if (node.op->random && node.inputs.empty()) return node.node;
  return nullptr;
}

// Runs a step for other towers: compiled for their rows.
CompiledStep& prepare_step(BuiltTraining& built, const StepNodes& nodes) {
  const auto first = static_cast<std::size_t>(towers_of_next(built).first);
  std::vector<Fetch> fetches;
  for (const std::vector<Gradient>& row : nodes.tower_gradients)
    for (const Gradient& gradient : row)
      if (gradient.value) fetches.emplace_back(gradient.value);
  std::vector<FeedType> feeds;
  const std::vector<TowerRecord>& towers = built.nodes().losses[0].towers_of(nodes.batch);
  for (std::size_t t = 0; t < towers.size(); ++t)
    add_feeds(towers[t], nodes.all.rows[first + t], nodes.all.begins[first + t], feeds);
  return built.session().prepare(fetches, feeds);
}

TowerHashes hashes_of(const std::vector<TowerContribution>& contributions) {
  TowerHashes towers;
  for (const TowerContribution& contribution : contributions) {
    towers.emplace_back();
    for (const NamedTensor& gradient : contribution.gradients)
      towers.back().push_back(check_hash(gradient.value));
  }
  return towers;
}

// The half of a text of two that this process or its check made.
std::string_view half(std::string_view both, bool second) {
  return both.substr(second ? both.size() / 2 : 0, both.size() / 2);
}

// Names the first process whose contribution the one before it computes otherwise.
[[noreturn]] void refuse(Processes& processes, const std::vector<TowerContribution>& own,
                         const std::vector<std::string>& of_all, std::int64_t step) {
  const int size = processes.size();
  int rank = 0;
  const auto text = [&](int r) -> const std::string& {
    return of_all[static_cast<std::size_t>((r + size) % size)];
  };
  while (half(text(rank), false) == half(text(rank - 1), true)) ++rank;
  const int before = (rank + size - 1) % size;
  const std::string_view has = half(text(rank), false), computed = half(text(before), true);
  std::string tower, first;
  std::size_t at = 0, others = 0;
  for (std::size_t t = 0; t < own.size(); ++t)
    for (const NamedTensor& gradient : own[t].gradients) {
      const bool differs = has.substr(at, kDigits) != computed.substr(at, kDigits);
      at += kDigits;
      if (!differs) continue;
      if (!first.empty()) ++others;
      if (first.empty()) {
        first = gradient.name;
        tower = cat("tower ", static_cast<std::size_t>(rank) * own.size() + t);
      }
    }
  throw CorruptionError(cat(
      "in step ", step, " rank ", rank, " on ", processes.host(rank),
      " contributed another gradient of '", first, "' (", tower, ") than rank ", before, " on ",
      processes.host(before), " computes for it", others > 0 ? cat(", and ", others, " more") : "",
      "; one of the two has computed wrong, or read wrong data; belfry replay of this step, before "
      "the run resumes, says which, if the run notes hashes (",
      the_option("hash_every"),
      "); then start the same command again, which resumes from the newest checkpoint; if this "
      "happens again, "
      "leave out that machine"));
}

}  // namespace contribution_check_file
}  // namespace

ContributionCheck::ContributionCheck(std::int64_t every) : every_(every) {
  require(every >= 1, contribution_check_file::kOption, " is ", every, "; it must be at least 1");
}

bool ContributionCheck::is_due(const Trainer& trainer, const StepInfo& info) const {
  return (info.step + 1) % every_ == 0 &&
         steps_.contains(contribution_check_file::form_of_step(trainer));
}

void ContributionCheck::check(Trainer& trainer) const {
  using namespace contribution_check_file;
  const BuiltTraining& built = trainer.built();
  const TrainerOptions& options = built.options();
  const auto refuse_unless = [](bool possible, const auto&... why) {
    require_option(possible, kOption, ": another process cannot compute the same bits: ", why...);
  };
  require_option(built.graph().process().size > 1, kOption,
                 " has another process compute gradients again, and there is one; leave it out");
  require_option(built.nodes().losses.size() == 1, kOption,
                 " works for one loss, and this training has ", built.nodes().losses.size());
  refuse_unless(!is_synchronised(built.graph()),
                "batch norm is synchronised, or a mean weighted, so gradients depend on the "
                "batches of all towers at "
                "once");
  refuse_unless(!built.train_data().is_stream(),
                "the training data are a stream, which is read once");
  refuse_unless(std::ranges::none_of(built.nodes().towers, &TowerRecord::asked_for_place),
                "the tower function asks which tower it builds (Tower::index(), total() or "
                "is_main())");
  if (const Node* const node = random_by_tower(built))
    refuse_unless(false, node->describe(),
                  " draws random numbers that belong to no sample; random_normal(tower, samples, "
                  "...) draws them by sample");
  refuse_unless(!any_gpu(options.devices) || options.session.deterministic,
                "GPUs take the fastest algorithms, which need not repeat (",
                the_option("deterministic"), ")");
  refuse_unless(built.arithmetics().mixed.empty(), built.arithmetics().mixed);
  refuse_unless(built.batches().forms()[0].equal(), "towers have unequal batches");
}

void ContributionCheck::setup(Trainer& trainer) {
  BuiltTraining& built = trainer.built();
  const std::vector<StepNodes>& steps = built.nodes().losses[0].steps;
  for (std::size_t form = 0; form < steps.size(); ++form)
    if (steps[form].all.equal())
      steps_[form] = &contribution_check_file::prepare_step(built, steps[form]);
}

void ContributionCheck::before_step(Trainer& trainer, const StepInfo& info) {
  using namespace contribution_check_file;
  computed_.clear();
  if (!is_due(trainer, info)) return;
  BuiltTraining& built = trainer.built();
  const std::size_t form = form_of_step(trainer);
  constexpr std::int64_t kFewestSlots = 2;
  Prefetcher input(built.train_data(), built.batches(), last_batch(trainer), kFewestSlots,
                   towers_of_next(built), {}, 0);  // for one batch, no thread
  const Batch& batch = input.next();
  Session& session = built.session();
  const std::uint64_t now = session.step();
  session.set_step(now + static_cast<std::uint64_t>(built.batches().batches_per_step()) - 1);
  CompiledStep& step = *steps_.at(form);
  step.run(batch.tensors);
  session.set_step(now);
  std::size_t fetch = 0;
  for (const std::vector<Gradient>& row : built.nodes().losses[0].steps[form].tower_gradients) {
    computed_.emplace_back();
    for (const Gradient& gradient : row)
      if (gradient.value) computed_.back().push_back(check_hash(step.fetched(fetch++)));
  }
}

void ContributionCheck::after_step(Trainer& trainer, const StepInfo& info) {
  using namespace contribution_check_file;
  if (computed_.empty()) return;
  Processes& processes = *trainer.built().processes();
  const std::vector<TowerContribution> own = trainer.record().contributions();
  const std::string has = text_of(hashes_of(own)), computed = text_of(computed_);
  require<InternalError>(has.size() == computed.size(), "contributions differ in number");
  const auto digest = [](const std::string& text) { return hex(check_hash(text), kDigits); };
  const std::vector<std::string> digests = processes.gather(digest(has) + digest(computed));
  const auto size = digests.size();
  bool all_equal = true;
  for (std::size_t r = 0; r < size; ++r)
    all_equal = all_equal && half(digests[r], true) == half(digests[(r + 1) % size], false);
  if (all_equal) return;
  const std::vector<std::string> all = processes.gather(has + computed);
  wait_for_all(processes);
  refuse(processes, own, all, info.step + 1);
}

}  // namespace belfry
