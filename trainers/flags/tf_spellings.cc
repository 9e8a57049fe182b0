#include "belfry/trainers/flags/tf_spellings.h"

#include <limits>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/tf_fixed_spellings_impl.h"
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
  // With one worker these modes do the same.
  if (mode == "distributed_all_reduce") return {{"trainer", "replicated", {}}};
  if (mode == "collective_all_reduce" && names_strategy(line))
    return {{"trainer", "replicated", {}}};
  if (mode == "collective_all_reduce")
    return {{"trainer", "replicated", {}}, {"allreduce", "collective", {}}};
  require<FlagError>(mode != "independent", self.written,
                     " trains a model per device, which share nothing: run a program with "
                     "--devices=/cpu:I for each, or write --trainer=replicated");
  require<FlagError>(mode != "distributed_replicated" && mode != "horovod", self.written,
                     " is --trainer=replicated in several processes: write that, and start them by "
                     "`belfry run -n N -- PROGRAM` or mpirun");
  throw FlagError(cat(self.written,
                      " is unknown; write --trainer=replicated or --trainer=parameter_server "
                      "(or async)"));
}

// Translates one range. In tf_cnn_benchmarks a number at pscpu and psgpu counts the devices that
// take turns in summing a tensor.
std::string strategy_of_range(const WrittenFlag& self, std::string_view range, int devices) {
  const std::string_view name = range.substr(0, range.find('#'));
  if (name == "hiercopy" || name == "hierarchical_copy")
    return cat("hierarchical", range.substr(name.size()));
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

// Parses a spec, and replaces aliases.
std::vector<AllReduceRange> ranges_of(const std::string& spec) {
  std::vector<AllReduceRange> ranges = parse_all_reduce_spec(underscores_in_names(spec)).ranges;
  for (AllReduceRange& range : ranges) range.strategy = main_strategy_name(range.strategy);
  return ranges;
}

bool is_same_spec(const std::string& a, const std::string& b) {
  try {
    return ranges_of(a) == ranges_of(b);
  } catch (const InvalidArgument&) {  // the error comes when the flag is read
    return false;
  }
}

Translated all_reduce_spec(const WrittenFlag& self, const WrittenFlags& line) {
  const int devices = count_devices(line);
  std::vector<std::string> pieces;
  for (const std::string_view piece : split(self.value, ':')) {
    require<FlagError>(!piece.empty(), self.written, ": a part of it, between colons, is empty");
    pieces.push_back(pieces.size() % 2 == 0 ? strategy_of_range(self, piece, devices)
                                            : std::string(piece));
  }
  const std::string spec = join(pieces, ":"), ours = line.value("allreduce");
  return {{"allreduce", is_same_spec(ours, spec) ? ours : spec, {}}};
}

// The device of variables that exist once. Otherwise it is the device where gradients are summed.
Translated local_parameter_device(const WrittenFlag& self, const WrittenFlags& line) {
  const std::string device = lower(self.value);
  require<FlagError>(device == "cpu" || device == "gpu", self.written, " is neither cpu nor gpu");
  const std::string trainer = named_trainer(line);
  const bool on_cpu = device == "cpu";
  if (trainer.empty())  // as in tf_cnn_benchmarks
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

// Trains this many steps, however many epochs they take.
Translated num_batches(const WrittenFlag& self, const WrittenFlags& line) {
  const WrittenFlag* const spelled = line.find("num_epochs");
  const WrittenFlag* const epochs = spelled ? spelled : line.find("epochs");
  require<FlagError>(!epochs, self.written, " and ", epochs ? epochs->written : "",
                     " both say how long to train; leave one of them out");
  std::int64_t steps = 0;
  read_integer(self, 1, std::numeric_limits<std::int64_t>::max(), steps);
  return {{"max_steps", cat(steps), {}}, {"epochs", cat(std::numeric_limits<int>::max()), {}}};
}

Translated save_model_secs(const WrittenFlag& self, const WrittenFlags&) {
  double seconds = 0;
  read_number(
      self, "a number >= 0", [](double x) { return x >= 0; }, seconds);
  return {{"save_every_minutes", cat(seconds / 60), {}}};
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
  all.insert(all.end(),
             {{"variable_update", "MODE", "--trainer=MODE, for parameter_server and replicated",
               variable_update},
              {"all_reduce_spec", "SPEC",
               "--allreduce: xring, nccl, collective; pscpu is naive_cpu, psgpu naive, hiercopy "
               "hierarchical, psgpu#K on K devices shuffle",
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

void add_checkpoints(std::vector<FlagSpelling>& all, const std::string& why) {
  for (const char* name : {"train_dir", "save_model_steps", "save_model_secs", "max_ckpts_to_keep"})
    all.push_back(refused(name, why));
}

void add_training(std::vector<FlagSpelling>& all, bool reads_files) {
  const std::string bench = "progress is printed as it is made; train_bench has this flag";
  all.insert(all.end(),
             {renamed("num_epochs", "N", "epochs"),
              renamed("train_dir", "DIR", "run_dir"),
              renamed("save_model_steps", "N", "save_every_steps"),
              renamed("max_ckpts_to_keep", "N", "keep"),
              {"save_model_secs", "X", "--save_every_minutes, in seconds", save_model_secs},
              {"num_batches", "N", "--max_steps=N, however many epochs that takes", num_batches},
              only("num_warmup_batches", "N", "0", "training has no warm-up; train_bench has one"),
              refused("display_every", bench),
              refused("model", "a training program has one model; train_bench has several"),
              only("print_training_accuracy", "", "true",
                   "progress shows all metrics of the model; leave it out"),
              refused("data_name",
                      reads_files ? "a program reads its own data; --data_dir says where they are"
                                  : "a program has its own data; leave it out")});
}

void add_benchmark(std::vector<FlagSpelling>& all) {
  add_checkpoints(all,
                  "a benchmark keeps nothing of its training; leave it out, or train with a "
                  "program that saves checkpoints, such as mnist");
  all.insert(all.end(),
             {{"data_name", "NAME", "cifar10 for resnet20, imagenet for resnet50: what they are",
               data_name},
              refused("num_epochs", "there are no epochs in synthetic data; write --num_batches=N"),
              refused("max_steps", "a benchmark runs all its steps; write --num_batches=N"),
              only("print_training_accuracy", "", "false",
                   "the loss is printed alone; leave it out, or train with a program that prints "
                   "accuracies, such as mnist"),
              refused("data_dir", "images are synthetic; leave it out"),
              refused("trace_file", "training programs have this flag, such as mnist")});
}

}  // namespace

std::vector<FlagSpelling> tf_spellings(const FlagDefaults& program) {
  std::vector<FlagSpelling> all = device_spellings();
  add_common(all);
  if (program.benchmark)
    add_benchmark(all);
  else
    add_training(all, program.reads_files);
  for (FlagSpelling& spelling : tf_fixed_spellings(program)) all.push_back(std::move(spelling));
  return all;
}

std::vector<FlagSpelling> tf_refusals(const std::string& why) {
  std::vector<FlagSpelling> all;
  for (const FlagSpelling& other : tf_spellings({.program = "", .benchmark = true}))
    all.push_back(only(other.name, other.unit, "", why));
  for (const char* const name : {"optimizer", "momentum", "weight_decay"})
    all.push_back(only(name, "X", "", why));  // training programs have these as they are
  return all;
}

}  // namespace belfry
