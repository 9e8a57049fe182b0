#include <initializer_list>
#include <string>
#include <utility>

#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/tf_fixed_spellings_impl.h"

namespace belfry {
namespace {

struct Fixed {
  std::string name;
  std::string value;  // the value that is taken; "" for none. Switches take true or false
};

class Table {
 public:
  void add(const std::string& why, std::initializer_list<Fixed> flags) {
    for (const Fixed& flag : flags) {
      const bool is_switch = flag.value == "true" || flag.value == "false";
      all_.push_back(only(flag.name, is_switch ? "" : "VALUE", flag.value, why));
    }
  }
  std::vector<FlagSpelling> take() { return std::move(all_); }

 private:
  std::vector<FlagSpelling> all_;
};

void add_gradients(Table& table) {
  table.add(cat("Belfry packs up to ", kMostInSmallPack, " small gradients; leave it out"),
            {{"agg_small_grads_max_group", cat(kMostInSmallPack)}});
  table.add("gradients are combined in buckets; --bucket_mb=X says how large they are",
            {{"allreduce_merge_scope", "1"}});
  table.add("gradients are combined as they are, f32 whatever the --precision; leave it out",
            {{"compact_gradient_transfer", "false"}});
  table.add("--allreduce=hierarchical has one; --links=FILE describes links",
            {{"network_topology", ""}});
  table.add("gradients are applied in the step that made them; leave it out",
            {{"variable_consistency", "strong"}});
  table.add("write --trainer=async", {{"cross_replica_sync", "true"}});
  table.add("variables are read in the step that uses them", {{"staged_vars", "false"}});
}

void add_precision(Table& table) {
  table.add("variables are f32 whatever the --precision", {{"fp16_vars", "false"}});
  table.add("with --precision=f16 the loss scale adapts itself; leave it out",
            {{"fp16_enable_auto_loss_scale", "true"},
             {"fp16_loss_scale", ""},
             {"fp16_inc_loss_scale_every_n", ""}});
}

void add_model(Table& table) {
  table.add("--clip_value=X cuts elements off, and --clip_norm=X bounds the norm of all together",
            {{"gradient_clip", ""}});
  table.add("write --optimizer=rms_prop with --alpha, --momentum and --epsilon",
            {{"rmsprop_decay", ""}, {"rmsprop_momentum", ""}, {"rmsprop_epsilon", ""}});
  table.add("write --optimizer=adam with --beta1, --beta2 and --epsilon",
            {{"adam_beta1", ""}, {"adam_beta2", ""}, {"adam_epsilon", ""}});
  table.add("the loss is part of the model's source, and --weight_decay is no part of it",
            {{"single_l2_loss_op", "false"}, {"loss_type_to_report", "total_loss"}});
  table.add(
      "write --learning_rate=X for a constant rate, --lr_schedule=SPEC and --warmup_steps=N for "
      "one "
      "that changes",
      {{"piecewise_learning_rate_schedule", ""},
       {"minimum_learning_rate", ""},
       {"num_epochs_per_decay", ""},
       {"learning_rate_decay_factor", ""},
       {"num_learning_rate_warmup_epochs", ""},
       {"resnet_base_lr", ""}});
}

void add_input(Table& table, bool benchmark) {
  table.add("images are NHWC alone; leave it out", {{"data_format", "NHWC"}});
  table.add(benchmark
                ? "images are synthetic, and not changed; leave it out"
                : "the program's data set says how its images are cut, shifted and mirrored for "
                  "training; leave it out",
            {{"distortions", "false"},
             {"resize_method", ""},
             {"input_preprocessor", "default"},
             {"fuse_decode_and_crop", "true"},
             {"distort_color_in_yiq", "true"},
             {"ml_perf", "false"}});
  table.add(benchmark ? "a thread gathers the coming batches; leave it out"
                      : "a thread gathers the coming batches, and --data_workers=N says how many "
                        "decode them; leave it out",
            {{"use_datasets", "true"},
             {"datasets_use_prefetch", "true"},
             {"datasets_use_caching", "true"},
             {"datasets_repeat_cached_sample", "false"},
             {"datasets_sloppy_parallel_interleave", "false"},
             {"datasets_prefetch_buffer_size", ""},
             {"datasets_num_private_threads", ""},
             {"datasets_parallel_interleave_cycle_length", ""},
             {"datasets_parallel_interleave_prefetch", ""},
             {"multi_device_iterator_max_buffer_size", ""},
             {"batch_group_size", "1"}});
}

void add_execution(Table& table) {
  table.add("a library call takes one thread; --threads=N says how many there are in all",
            {{"num_intra_threads", "1"},
             {"gpu_thread_mode", ""},
             {"per_gpu_thread_count", ""},
             {"use_numa_affinity", "false"},
             {"mkl", "false"},
             {"kmp_blocktime", ""},
             {"kmp_affinity", ""},
             {"kmp_settings", ""}});
  table.add("there is no other compiler; leave it out", {{"xla", "false"},
                                                         {"xla_compile", "false"},
                                                         {"enable_optimizations", "true"},
                                                         {"rewriter_config", ""},
                                                         {"trt_mode", ""},
                                                         {"trt_max_workspace_size_bytes", ""}});
  table.add("memory is planned before the first step, as --dry_run shows; leave it out",
            {{"allow_growth", "true"},
             {"use_unified_memory", "false"},
             {"timestamped_allocator", "false"},
             {"force_gpu_compatible", "false"},
             {"gpu_memory_frac_for_testing", "0"},
             {"gpu_kt_max_interval", "0"},
             {"gpu_kt_max_bytes", "0"},
             {"gpu_kt_max_pending", "0"}});
  table.add("libraries choose their algorithms; --algorithms=FILE keeps what they chose",
            {{"winograd_nonfused", "true"}});
}

void add_evaluation(Table& table, bool benchmark) {
  table.add(benchmark ? "a benchmark evaluates nothing; leave it out, or train with a program that "
                        "does, such as mnist"
                      : "programs evaluate after each epoch, in batches of --batch_size; write "
                        "--eval_every_epochs=N, --eval_every_steps=N, --eval_batches=N or "
                        "--evaluate_only",
            {{"eval", "false"},
             {"eval_during_training_every_n_epochs", benchmark ? "" : "1"},
             {"eval_during_training_every_n_steps", ""},
             {"eval_during_training_at_specified_steps", ""},
             {"eval_during_training_at_specified_epochs", ""},
             {"eval_interval_secs", ""},
             {"eval_batch_size", ""},
             {"num_eval_batches", ""},
             {"num_eval_epochs", ""},
             {"eval_dir", ""},
             {"collect_eval_results_async", "false"}});
  table.add(benchmark ? "a benchmark runs all its steps; --num_batches=N says how many"
                      : "training ends at no accuracy; --early_stop=validation_accuracy:max:N ends "
                        "it when that "
                        "no longer rises",
            {{"stop_at_top_1_accuracy", ""}});
}

void add_outputs(Table& table, bool benchmark) {
  table.add(benchmark ? "results go to --json=FILE; training programs keep logs and files for "
                        "TensorBoard, such as mnist"
                      : "results go to --json=FILE; --run_dir=DIR keeps log.txt, stats.jsonl and "
                        "files for TensorBoard",
            {{"summary_verbosity", "0"},
             {"save_summaries_steps", "0"},
             {"benchmark_log_dir", ""},
             {"benchmark_test_id", ""}});
  table.add("there are no such profiles; write --trace_file=FILE", {{"tfprof_file", ""}});
  table.add(benchmark ? "no graph is written; leave it out"
                      : "no graph is written; --log_device_placement shows the device of each node",
            {{"graph_file", ""}, {"partitioned_graph_file_prefix", ""}});
  table.add("traces are in Chrome's format; leave it out", {{"use_chrome_trace_format", "true"}});
}

void add_rest(Table& table) {
  table.add("programs train; leave it out",
            {{"forward_only", "false"}, {"freeze_when_forward_only", "false"}});
  table.add(
      "processes have no roles and no list of hosts: `belfry run -n N -- PROGRAM`, mpirun, or "
      "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment start several, and "
      "--devices names those of each; leave it out",
      {{"job_name", ""},
       {"task_index", ""},
       {"ps_hosts", ""},
       {"worker_hosts", ""},
       {"controller_host", ""},
       {"server_protocol", ""},
       {"horovod_device", ""},
       {"use_python32_barrier", "false"}});
  table.add("Belfry has nothing like it; leave it out", {{"sync_on_finish", "false"},
                                                         {"batchnorm_persistent", "false"},
                                                         {"autotune_threshold", ""},
                                                         {"display_perf_ewma", ""},
                                                         {"debugger", ""},
                                                         {"use_tf_layers", "true"},
                                                         {"use_resource_vars", "false"},
                                                         {"compute_lr_on_cpu", "false"},
                                                         {"sparse_to_dense_grads", "false"},
                                                         {"backbone_model_path", ""}});
}

}  // namespace

std::vector<FlagSpelling> tf_fixed_spellings(const FlagDefaults& program) {
  Table table;
  add_gradients(table);
  add_precision(table);
  add_model(table);
  add_input(table, program.benchmark);
  add_execution(table);
  add_evaluation(table, program.benchmark);
  add_outputs(table, program.benchmark);
  add_rest(table);
  return table.take();
}

}  // namespace belfry
