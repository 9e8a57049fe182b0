// Whatever holds of every flag of training programs. A new flag fails here by its name until it is
// where it has to be.
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/program/run_flags.h"

namespace belfry {
namespace every_flag_test {

using testing::AllOf;
using testing::HasSubstr;
using Names = std::set<std::string>;

Names names_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// All that --help lists, but for --help, --version and the spellings of tf_cnn_benchmarks.
Names listed() {
  const std::string help = parse({"--help"}).help;
  Names names;
  for (const std::string_view line : split(help, '\n')) {
    if (line.starts_with("As in tf_cnn_benchmarks")) break;
    constexpr std::string_view kIndent = "  ";
    if (!line.starts_with("  --")) continue;
    const std::string_view name = line.substr(kIndent.size());
    names.emplace(name.substr(0, name.find_first_of(" ,")));
  }
  names.erase("--version");
  EXPECT_THAT(names, testing::IsSupersetOf({"--devices", "--seed", "--dry_run"}));
  return names;
}

// What `names` lists and --help does not; each list below is of flags that there are.
Names unlisted(const Names& names) {
  Names unknown = names;
  for (const std::string& name : listed()) unknown.erase(name);
  return unknown;
}

// With a value that they take.
const std::map<std::string, std::string> kRefusedBesideEquivalence = {
    {"--trainer", "replicated"},
    {"--allreduce", "naive"},
    {"--parameter_device", "cpu"},
    {"--gradient_repacking", "2"},
    {"--small_tensors_kb", "4"},
    {"--bucket_mb", "1"},
    {"--fuse", "0"},
    {"--share_replicas", "0"},
    {"--async", "free"},
    {"--epochs", "2"},
    {"--max_steps", "3"},
    {"--early_stop", "loss:min:1"},
    {"--on_nonfinite", "continue"},
    {"--dry_run", "true"},
    {"--summary", "true"},
    {"--explain", "x"},
    {"--log_device_placement", "true"},
    {"--trace_file", "t"},
    {"--memory_report", "m"},
    {"--run_dir", "d"},
    {"--resume", "c"},
    {"--load", "c"}};

TEST(EveryFlag, IsTakenOrRefusedBesideCheckEquivalence) {
  // Or of no use without --run_dir or --dry_run, which are refused.
  const Names taken = names_in(
      "--algorithms --auto_any --bad_records --batch_size --best_metric --check_equivalence "
      "--check_replicas_every --clip_norm --config --data_dir --data_workers --deterministic "
      "--devices --global_batch_size --gradient_accumulation_steps --hash_every "
      "--histograms_every --insecure --json --keep --learning_rate --links --logical_gpus "
      "--lost_after_seconds --lr_schedule --load_checkpoint --load_weights "
      "--max_time --meeting_timeout_s --memory_every --mfu --moving_average "
      "--moving_average_warmup --mpi --on_save_error "
      "--overwrite "
      "--partition_updates --precision --print_config --processes --processes_per_host "
      "--recompute --remeasure --save_every_epochs --save_every_minutes --save_every_steps "
      "--seed --shards --stall_abort_seconds --stall_exit_code --stall_warn_seconds --threads "
      "--tower_weights --trace_steps --uneven --warmup_steps --weight_decay");
  EXPECT_THAT(unlisted(taken), testing::IsEmpty());
  for (const std::string& flag : listed()) {
    if (taken.contains(flag)) continue;
    const auto refused = kRefusedBesideEquivalence.find(flag);
    if (refused == kRefusedBesideEquivalence.end()) {
      ADD_FAILURE() << flag << ": if --check_equivalence chooses it itself, refuse it in "
                    << "refuse_beside_inspection() and add it to kRefusedBesideEquivalence; else "
                    << "add it to `taken`";
      continue;
    }
    const std::string argument = cat(flag, "=", refused->second);
    EXPECT_THAT(refusal({"--check_equivalence=5", argument.c_str()}),
                AllOf(HasSubstr(flag), HasSubstr("--check_equivalence")));
  }
}

// So that another version, with other defaults, makes the same run of it.
TEST(EveryFlag, IsInTheConfigurationUnlessItsDefaultIsNone) {
  const Names of_one_call_or_none = names_in(
      "--algorithms --auto_any --bad_records --batch_size --best_metric --check_equivalence "
      "--config --data_dir --deterministic --dry_run --early_stop --explain --insecure --json "
      "--links "
      "--load --load_checkpoint --load_weights --lost_after_seconds "
      "--log_device_placement --logical_gpus --lr_schedule --max_time --meeting_timeout_s "
      "--memory_report --mfu "
      "--moving_average --moving_average_warmup --mpi --overwrite --print_config --processes "
      "--processes_per_host "
      "--recompute --remeasure --resume --run_dir "
      "--shards --stall_abort_seconds --stall_exit_code --stall_warn_seconds --summary "
      "--tower_weights --trace_file --trace_steps");
  EXPECT_THAT(unlisted(of_one_call_or_none), testing::IsEmpty());
  Names kept;
  for (const std::string& trainer : trainer_names()) {
    const std::string argument = "--trainer=" + trainer;
    const char* const devices = find_trainer(trainer).takes_one_device ? "cpu:1" : "cpu:2";
    TrainFlags flags = parse({argument.c_str(), "--devices", devices, "--run_dir=d"});
    add_to_config(flags, sgd(0.1));
    for (const auto& [name, value] : flags.config.members()) kept.insert("--" + name);
    for (const auto& [name, value] : flags.config.at(kChosen).members()) kept.insert("--" + name);
  }
  for (const std::string& flag : listed())
    EXPECT_NE(kept.contains(flag), of_one_call_or_none.contains(flag))
        << flag << ": add its default to resolved_config() or, if it depends on the trainer or the "
        << "devices, to chosen_by() (run_flags.cc); or add it to `of_one_call_or_none`. Not both";
}

// Whatever is typed, errors are ours: they name the flag as it was written.
TEST(EveryFlag, NamesItselfInEveryError) {
  const Names take_any_text = names_in(
      "--data_dir --explain --json --load --memory_report --recompute "
      "--resume --run_dir --trace_file");
  EXPECT_THAT(unlisted(take_any_text), testing::IsEmpty());
  Names refuse_garbage = names_in(
      "--num_gpus --device --num_epochs --variable_update "
      "--num_batches --use_fp16 --all_reduce_spec --tf_random_seed --zero_stage");
  refuse_garbage.merge(listed());
  for (const std::string& flag : refuse_garbage) {
    bool accepted = false;
    for (const char* value : {"", "garbage", "-1", "9e99999", "nan", "=", "\n"}) {
      const std::string argument = cat(flag, "=", value);
      const std::string why = refusal({argument.c_str()});
      accepted = accepted || why == kAccepted;
      if (why == kAccepted && take_any_text.contains(flag)) continue;
      EXPECT_THAT(why, testing::StartsWith(flag)) << argument;
      EXPECT_THAT(why, testing::Not(HasSubstr("Could not"))) << argument;
    }
    EXPECT_EQ(accepted, take_any_text.contains(flag)) << flag;
  }
}

}  // namespace every_flag_test
}  // namespace belfry
