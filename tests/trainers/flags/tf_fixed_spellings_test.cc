// Flags of tf_cnn_benchmarks for which there is no choice here. Each error names a flag to write,
// or says that there is nothing like it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/flags/tf_spellings.h"

namespace belfry {
namespace tf_fixed_spellings_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(TfFixedSpellings, SayWhatToWrite) {
  const std::pair<const char*, const char*> refusals[] = {
      {"--winograd_nonfused=false", "--algorithms=FILE"},
      {"--summary_verbosity=1", "--json=FILE"},
      {"--save_summaries_steps=10", "--run_dir=DIR"},
      {"--worker_hosts=a:1", "belfry run -n N"},
      {"--ps_hosts=a:1", "mpirun"},
      {"--job_name=ps", "WORLD_SIZE"},
      {"--task_index=1", "RANK"},
      {"--horovod_device=gpu", "belfry run -n N"},
      {"--distortions", "shifted and mirrored"},
      {"--benchmark_log_dir=d", "--json=FILE"},
      {"--compact_gradient_transfer", "f32"},
      {"--nodatasets_use_prefetch", "a thread gathers the coming batches"},
      {"--batch_group_size=2", "a thread gathers the coming batches"},
      {"--sync_on_finish", "Belfry has nothing like it"},
      {"--eval_during_training_every_n_epochs=2", "after each epoch"},
      {"--eval_during_training_every_n_steps=2", "after each epoch"},
      {"--num_eval_batches=2", "in batches of --batch_size; write --eval_every_epochs=N"},
      {"--eval_batch_size=2", "in batches of --batch_size; write --eval_every_epochs=N"},
      {"--stop_at_top_1_accuracy=0.9", "--early_stop=validation_accuracy:max:N"},
      {"--tfprof_file=f", "--trace_file=FILE"},
      {"--graph_file=f", "--log_device_placement"},
      {"--rmsprop_decay=0.9", "--optimizer=rms_prop"},
      {"--adam_beta1=0.8", "--optimizer=adam"},
      {"--gradient_clip=4", "--clip_norm=X"},
      {"--allow_growth=false", "--dry_run"},
      {"--kmp_blocktime=0", "--threads=N"}};
  for (const auto& [flag, advice] : refusals)
    EXPECT_THAT(refusal({flag}),
                AllOf(HasSubstr(flag), HasSubstr(advice), Not(HasSubstr("did you mean"))));
}

TEST(TfFixedSpellings, TakeWhatHappensAnyway) {
  EXPECT_EQ(parse({"--winograd_nonfused", "--summary_verbosity=0", "--save_summaries_steps=0",
                   "--nocompact_gradient_transfer", "--datasets_use_prefetch=True",
                   "--sync_on_finish=false", "--batch_group_size=1", "--use_datasets",
                   "--eval_during_training_every_n_epochs=1", "--allreduce_merge_scope=1"})
                .trainer.epochs,
            1);
}

// Programs that train, benchmarks, and programs that do neither know all these flags.
TEST(TfFixedSpellings, AreKnownToEveryProgram) {
  std::vector<std::string> names;
  for (const FlagSpelling& spelling : tf_refusals("nothing is trained")) {
    EXPECT_THROW(spelling.translate({spelling.name, "1", "(this)"}, {}), FlagError);
    names.push_back(spelling.name);
  }
  for (const char* name :
       {"winograd_nonfused", "summary_verbosity", "save_summaries_steps",
        "compact_gradient_transfer", "datasets_use_prefetch", "sync_on_finish", "batch_group_size",
        "eval_during_training_every_n_epochs", "stop_at_top_1_accuracy", "benchmark_log_dir",
        "tfprof_file", "optimizer", "weight_decay", "staged_vars", "job_name", "num_eval_batches",
        "eval_batch_size", "graph_file", "max_steps"})
    EXPECT_THAT(names, testing::Contains(name));
}

}  // namespace tf_fixed_spellings_test
}  // namespace belfry
