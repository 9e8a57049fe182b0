#include "belfry/trainers/program/tf_spellings.h"

#include <limits>

#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

using Translated = std::vector<WrittenFlag>;

// The trainer that a command line names, in either spelling; "" if it names none.
std::string named_trainer(const WrittenFlags& line) {
  return line.value("trainer", line.value("variable_update"));
}

bool names_strategy(const WrittenFlags& line) {
  return line.find("allreduce") || line.find("all_reduce_spec") ||
         line.value("hierarchical_copy") == "true";
}

Translated variable_update(const WrittenFlag& self, const WrittenFlags& line) {
  const std::string& mode = self.value;
  if (mode == "parameter_server" || mode == "replicated") return {{"trainer", mode, {}}};
  // With one worker that is what these are.
  if (mode == "distributed_all_reduce") return {{"trainer", "replicated", {}}};
  if (mode == "collective_all_reduce" && names_strategy(line))
    return {{"trainer", "replicated", {}}};
  if (mode == "collective_all_reduce")
    return {{"trainer", "replicated", {}}, {"allreduce", "collective", {}}};
  require<FlagError>(mode != "independent", self.written,
                     " trains a model per device, which share nothing: run a program with "
                     "--devices=/cpu:I for each, or write --trainer=replicated");
  require<FlagError>(mode != "distributed_replicated" && mode != "horovod", self.written,
                     " needs several processes, and this is one; write --trainer=replicated");
  throw FlagError(cat(self.written,
                      " is unknown; write --trainer=replicated or --trainer=parameter_server "
                      "(or async)"));
}

// One range. There a number at pscpu and psgpu is that of the devices that share in summing a
// tensor, which take turns.
std::string strategy_of_range(const WrittenFlag& self, std::string_view range, int devices) {
  const std::string_view name = range.substr(0, range.find('#'));
  if (name != "pscpu" && name != "psgpu") return std::string(range);
  const std::string_view number = name == range ? "1" : range.substr(name.size() + 1);
  if (number == "1") return name == "pscpu" ? "naive_cpu" : "naive";
  require<FlagError>(name == "psgpu", self.written, ": '", shown(range),
                     "' sums on several CPU devices of a process, where tf_cnn_benchmarks has one; "
                     "write --allreduce=naive_cpu, which sums on cpu:0");
  require<FlagError>(
      number == cat(devices) || devices == 0, self.written, ": '", shown(range),
      "' is a number of devices that sum a tensor, of which Belfry takes one or all (", devices,
      "); write --allreduce=naive or --allreduce=shuffle");
  return "shuffle";
}

Translated all_reduce_spec(const WrittenFlag& self, const WrittenFlags& line) {
  const int devices = count_devices(line);
  std::string spec;
  int pieces = 0;
  for (const std::string_view piece : split(self.value, ':')) {
    require<FlagError>(!piece.empty(), self.written, ": a part of it, between colons, is empty");
    if (pieces > 0) spec += ':';
    spec += pieces++ % 2 == 0 ? strategy_of_range(self, piece, devices) : std::string(piece);
  }
  return {{"allreduce", spec, {}}};
}

// Where variables are that exist once, or else where gradients are summed.
Translated local_parameter_device(const WrittenFlag& self, const WrittenFlags& line) {
  const std::string device = lower(self.value);
  require<FlagError>(device == "cpu" || device == "gpu", self.written, " is neither cpu nor gpu");
  const std::string trainer = named_trainer(line);
  const bool on_cpu = device == "cpu";
  if (trainer.empty())  // as there
    return {{"trainer", "parameter_server", {}},
            {"parameter_device", on_cpu ? "cpu" : "spread", {}}};
  if (trainer == "parameter_server" || trainer == "async")
    return {{"parameter_device", on_cpu ? "cpu" : "spread", {}}};
  if (names_strategy(line) || trainer == "collective_all_reduce") return {};
  return {{"allreduce", on_cpu ? "naive_cpu" : "naive", {}}};
}

Translated hierarchical_copy(const WrittenFlag& self, const WrittenFlags&) {
  if (self.value == "false") return {};
  return {{"allreduce", "hierarchical", {}}};
}

Translated use_fp16(const WrittenFlag& self, const WrittenFlags&) {
  return {{"precision", self.value == "true" ? "f16" : "f32", {}}};
}

Translated agg_small_grads_max_bytes(const WrittenFlag& self, const WrittenFlags&) {
  const std::int64_t bytes = parse_bytes(self.written, self.value);
  require<FlagError>(bytes % 1024 == 0, self.written,
                     " is no multiple of 1024; --small_tensors_kb=N takes whole KiB");
  return {{"small_tensors_kb", cat(bytes / 1024), {}}};
}

// So many steps, however many epochs they take.
Translated num_batches(const WrittenFlag& self, const WrittenFlags& line) {
  const WrittenFlag* const epochs = line.find("num_epochs");
  require<FlagError>(!epochs, self.written, " and ", epochs ? epochs->written : "",
                     " both say how long to train; leave one of them out");
  std::int64_t steps = 0;
  read_integer(value_of(self), 1, std::numeric_limits<std::int64_t>::max(), steps);
  Translated flags{{"max_steps", cat(steps), {}}};
  if (!line.find("epochs")) flags.push_back({"epochs", cat(std::numeric_limits<int>::max()), {}});
  return flags;
}

Translated data_name(const WrittenFlag& self, const WrittenFlags& line) {
  const std::string model = line.value("model");
  const bool fits = (self.value == "cifar10" && model == "resnet20") ||
                    (self.value == "imagenet" && model == "resnet50");
  require<FlagError>(fits, self.written,
                     ": images are synthetic, in the size of the --model: resnet20 as of cifar10, "
                     "resnet50 as of imagenet; leave it out");
  return {};
}

void add_common(std::vector<FlagSpelling>& all) {
  all.insert(
      all.end(),
      {{"variable_update", "MODE", "--trainer=MODE, for parameter_server and replicated",
        variable_update},
       {"all_reduce_spec", "SPEC",
        "--allreduce: xring, nccl, collective; pscpu is naive_cpu, psgpu naive, psgpu#K on K "
        "devices shuffle",
        all_reduce_spec},
       {"local_parameter_device", "cpu|gpu",
        "--parameter_device=cpu|spread; for replicas --allreduce=naive_cpu or naive",
        local_parameter_device},
       {"hierarchical_copy", "", "--allreduce=hierarchical", hierarchical_copy},
       {"agg_small_grads_max_bytes", "BYTES", "--small_tensors_kb, in bytes",
        agg_small_grads_max_bytes},
       {"use_fp16", "", "--precision=f16", use_fp16},
       renamed("init_learning_rate", "X", "learning_rate"),
       renamed("num_inter_threads", "N", "threads"),
       renamed("tf_random_seed", "N", "seed")});
}

// What there is no choice of.
void add_fixed(std::vector<FlagSpelling>& all) {
  const std::string source = "it is part of the model's source; --learning_rate alone has a flag";
  const std::string processes = "one process serves all devices, and there are no others";
  const std::string checkpoints =
      "write --save_checkpoint=DIR, which saves after each epoch, and --restore_checkpoint=DIR to "
      "go on from there";
  all.insert(
      all.end(),
      {only("agg_small_grads_max_group", "N", cat(kMostInSmallPack),
            cat("Belfry packs up to ", kMostInSmallPack, " small gradients; leave it out")),
       only("data_format", "FORMAT", "NHWC", "images are NHWC alone; leave it out"),
       only("num_intra_threads", "N", "1",
            "an operation takes one thread; --threads=N says how many there are in all"),
       only("variable_consistency", "KIND", "strong",
            "gradients are applied in the step that made them; leave it out"),
       only("cross_replica_sync", "", "true", "write --trainer=async"),
       only("staged_vars", "", "false", "variables are read in the step that uses them"),
       only("forward_only", "", "false", "programs train; leave it out"),
       only("eval", "", "false", "programs train, and evaluate after each epoch; leave it out"),
       only("distortions", "", "false", "images are taken as they are; leave it out"),
       only("xla", "", "false", "there is no other compiler; leave it out"),
       only("fp16_vars", "", "false", "variables are f32 whatever the --precision"),
       only("fp16_enable_auto_loss_scale", "", "true",
            "with --precision=f16 the loss scale adapts itself"),
       refused("fp16_loss_scale",
               "with --precision=f16 the loss scale adapts itself; leave it out"),
       refused("network_topology",
               "--allreduce=hierarchical has one; --links=FILE describes links"),
       refused("optimizer", source),
       refused("momentum", source),
       refused("weight_decay", source),
       refused("train_dir", checkpoints),
       refused("save_model_steps", checkpoints),
       refused("save_model_secs", checkpoints),
       refused("max_ckpts_to_keep", checkpoints),
       refused("job_name", processes),
       refused("task_index", processes),
       refused("ps_hosts", processes),
       refused("worker_hosts", processes),
       refused("controller_host", processes),
       refused("horovod_device", processes)});
}

void add_training(std::vector<FlagSpelling>& all) {
  const std::string bench = "progress is printed as it is made; train_bench has this flag";
  all.insert(
      all.end(),
      {renamed("num_epochs", "N", "epochs"),
       {"num_batches", "N", "--max_steps=N, however many epochs that takes", num_batches},
       only("num_warmup_batches", "N", "0", "training has no warm-up; train_bench has one"),
       refused("display_every", bench),
       refused("model", "a training program has one model; train_bench has several"),
       refused("data_name", "a program reads its own data; --data_dir says where they are")});
}

void add_benchmark(std::vector<FlagSpelling>& all) {
  all.insert(all.end(),
             {{"data_name", "NAME", "cifar10 for resnet20, imagenet for resnet50: what they are",
               data_name},
              refused("num_epochs", "there are no epochs in synthetic data; write --num_batches=N"),
              refused("data_dir", "images are synthetic; leave it out"),
              refused("trace_file", "training programs have this flag, such as mnist")});
}

}  // namespace

std::vector<FlagSpelling> tf_spellings(bool benchmark) {
  std::vector<FlagSpelling> all = device_spellings();
  add_common(all);
  (benchmark ? add_benchmark : add_training)(all);
  add_fixed(all);
  return all;
}

}  // namespace belfry
