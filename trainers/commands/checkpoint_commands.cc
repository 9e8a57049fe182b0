#include "belfry/trainers/commands/checkpoint_commands.h"

#include <array>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <vector>

#include "belfry/framework/base/find_word.h"
#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/tensor_files.h"
#include "belfry/trainers/commands/checkpoint_diff.h"
#include "belfry/trainers/commands/checkpoint_listing.h"
#include "belfry/trainers/commands/export_place.h"
#include "belfry/trainers/commands/exported_graph.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/commands/weights_file.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/weight_flags.h"
#include "belfry/trainers/onnx/write_onnx.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

using Arguments = std::span<const char* const>;
constexpr auto kNeeded = FlagParser::Needed::kYes;
constexpr char kPathText[] =
    "a checkpoint, or the directory of a run: its best one, or the latest if it has no best one";

void print(const std::string& text, std::FILE* stream = stdout) {
  std::fputs(text.c_str(), stream);
}

// A result for people and, if it is asked for, for programs.
class ResultOutput {
 public:
  // Make it before there is a result: it opens the output. `inputs` are checkpoints and runs, whose
  // files it spares.
  ResultOutput(const std::string& path, std::initializer_list<std::string> inputs) {
    for (const std::string& input : inputs)
      if (run_config(local_file_system(), input)) reserve_run(outputs_, cat("PATH=", input), input);
    json_ = outputs_.open("--json", path);
  }
  void write(const std::string& text, const JsonValue& json) {
    print(text, outputs_.on_stdout() ? stderr : stdout);
    if (json_) json_->write(json.str(2) + "\n");
    outputs_.finish();
  }

 private:
  OutputFiles outputs_{local_file_system()};
  OutputFile* json_ = nullptr;
};

void add_json(FlagParser& parser, std::string& json) {
  parser.add("--json", json, "FILE", "write the same there as JSON; -: to stdout [none]");
}

void add_layout(FlagParser& parser, std::optional<WeightLayout>& layout, const std::string& text) {
  parser.add(
      "--layout",
      [&layout](const WrittenFlag& flag) {
        layout = as_flag(flag.shown_name(), [&] { return find_weight_layout(flag.value); });
      },
      "NAME", text);
}

struct LsFlags {
  std::string help, path, json;
  std::optional<CheckpointChoice> checkpoint;
};

LsFlags parse_ls(Arguments arguments, const std::string& program) {
  LsFlags flags;
  FlagParser parser(
      "Lists the tensors of a checkpoint, and all checkpoints of a run. Reads no values.", program);
  parser.add_argument("PATH", flags.path, kPathText, kNeeded);
  add_checkpoint_flag(parser, "", flags.checkpoint);
  add_json(parser, flags.json);
  flags.help = parser.parse(arguments);
  return flags;
}

int run_ls(const LsFlags& flags) {
  ResultOutput output(flags.json, {flags.path});
  Listing all;
  if (is_run_directory(flags.path)) all = list_run(flags.path);
  const Listing one =
      list_checkpoint(read_checkpoint_head(checkpoint_at(flags.path, flags.checkpoint)));
  for (const auto& [key, value] : one.json.members()) all.json.set(key, value);
  output.write(cat(all.text, all.text.empty() ? "" : "\n", one.text), all.json);
  return 0;
}

struct VerifyFlags {
  std::string help;
  std::vector<std::string> paths;
};

VerifyFlags parse_verify(Arguments arguments, const std::string& program) {
  VerifyFlags flags;
  FlagParser parser(
      "Reads checkpoints and checks every checksum. Exits with 1 if one is damaged or missing.",
      program);
  parser.add_arguments("PATH", flags.paths,
                       "a checkpoint, or the directory of a run: all that it has");
  flags.help = parser.parse(arguments);
  return flags;
}

// ", 'fc/w' has nan at element 3"; "" if all values are finite.
std::string not_finite_text(const StoredCheckpoint& checkpoint) {
  for (const auto& [name, entry] : checkpoint.head.manifest.tensors)
    if (const auto found = may_be_infinite(entry.role, entry.trainable)
                               ? find_nan(entry.dtype, checkpoint.values(name))
                               : find_not_finite(entry.dtype, checkpoint.values(name)))
      return cat(", but '", shown(name), "' has ", *found);
  return "";
}

// Prints a line; returns whether the checkpoint is sound. Throws NotFoundError if there is none.
bool verify(const std::string& path) try {
  const StoredCheckpoint checkpoint = read_checkpoint(path);
  const Manifest& manifest = checkpoint.head.manifest;
  print(cat("ok       ", path, " (step ", manifest.shown_step(), ", ", manifest.tensors.size(),
            " tensors, ", stored_bytes(manifest), " bytes", not_finite_text(checkpoint), ")\n"));
  return true;
} catch (const NotFoundError&) {
  throw;
} catch (const Error& error) {
  print(cat("damaged  ", path, ": ", error.what(), "\n"));
  return false;
}

bool verify_one(const std::string& path) try {
  return verify(path);
} catch (const NotFoundError& error) {
  print(cat("missing  ", path, ": ", error.what(), "\n"));
  return false;
}

bool verify_run(const std::string& run) {
  bool all_good = true;
  visit_checkpoints(
      run, [&](const std::string& checkpoint) { all_good = verify(checkpoint) && all_good; });
  return all_good;
}

int run_verify(const VerifyFlags& flags) {
  bool all_good = true;
  for (const std::string& path : flags.paths) {
    const bool is_good = is_run_directory(path) ? verify_run(path) : verify_one(path);
    all_good = is_good && all_good;
  }
  return all_good ? 0 : 1;
}

struct DiffFlags {
  std::string help, a, b, json;
  std::optional<CheckpointChoice> checkpoint;
};

DiffFlags parse_diff(Arguments arguments, const std::string& program) {
  DiffFlags flags;
  FlagParser parser(
      "Compares the tensors of two checkpoints, bit for bit. Exits with 0 if they are equal, else "
      "with 1.",
      program);
  parser.add_argument("A", flags.a, kPathText, kNeeded);
  parser.add_argument("B", flags.b, "the other one", kNeeded);
  add_checkpoint_flag(parser, "", flags.checkpoint);
  add_json(parser, flags.json);
  flags.help = parser.parse(arguments);
  return flags;
}

int run_diff(const DiffFlags& flags) {
  ResultOutput output(flags.json, {flags.a, flags.b});
  const auto read = [&](const std::string& path) {
    return read_checkpoint(checkpoint_at(path, flags.checkpoint));
  };
  const CheckpointDifference difference = compare_checkpoints(read(flags.a), read(flags.b));
  output.write(difference.text(), difference.json());
  return difference.none() ? 0 : 1;
}

// What to write of a checkpoint.
enum class ExportFormat : std::uint8_t { kSafetensors, kPlan, kOnnx };
constexpr std::string_view kExportFormats[] = {"safetensors", "plan", "onnx"};

// Rules of names say themselves in which order axes are.
void check_names(const FlagParser& parser, const std::string& names, bool partial) {
  require<FlagError>(names.empty() || !parser.given("--layout"), "--names=", names,
                     " says how axes are arranged, too; leave --layout out");
  require<FlagError>(!names.empty() || !partial, "--partial has no use without --names");
}

// The rules of --names; none if it is not given.
std::optional<NameRules> rules_of(const std::string& names) {
  if (names.empty()) return {};
  return as_flag(cat("--names=", names), [&] { return find_name_rules(names); });
}

struct ExportFlags {
  std::string help, path, out;
  ExportFormat format = ExportFormat::kSafetensors;
  std::optional<WeightLayout> layout;
  WeightChoice weights = WeightChoice::kValidated;
  std::optional<CheckpointChoice> checkpoint;
  bool state = false, overwrite = false;
  std::string names;
  bool partial = false;
  std::int64_t max_shard_mb = 0;
};

ExportFlags parse_export(Arguments arguments, const std::string& program) {
  ExportFlags flags;
  FlagParser parser("Writes the weights of a checkpoint as a file, which other programs read.",
                    program);
  parser.add_argument("PATH", flags.path, kPathText, kNeeded);
  parser.add_argument("OUT", flags.out,
                      "the file to write; -: standard output; or the folder, which gets "
                      "model.safetensors, or shards",
                      kNeeded);
  parser.add_parsed(
      "--format", flags.format,
      [](std::string_view word) { return find_word<ExportFormat>(kExportFormats, word, "format"); },
      "NAME",
      "safetensors; plan: with the graph that predicts, for Predictor::open() and "
      "belfry/predict.h; or onnx: the same for onnxruntime and others [safetensors]");
  add_layout(parser, flags.layout,
             "of safetensors: belfry, or torch: kernels of convolutions as [out, in, height, "
             "width], weights of "
             "dense layers as [out, in] (those called .../W) [belfry]");
  add_name_flags(parser, "OUT", flags.names, flags.partial);
  add_weight_flags(parser, "", flags.weights, flags.checkpoint);
  parser.add("--state", flags.state,
             "all tensors as they are: raw weights, their averages, slots and counters [false]");
  parser.add("--max_shard_mb", flags.max_shard_mb, 0, 1 << 30, "MB",
             "safetensors in files of at most so many MB, with an index, in the folder OUT; 0: as "
             "one file [0]");
  parser.add("--overwrite", flags.overwrite, "replace the file that is there [false]");
  flags.help = parser.parse(arguments);
  require<FlagError>(
      !flags.state || !parser.given("--weights") || flags.weights == WeightChoice::kRaw,
      parser.flag("--weights").written,
      " chooses one value of each weight, and --state writes all as they are; leave "
      "one of them out");
  check_names(parser, flags.names, flags.partial);
  require<FlagError>(!flags.state || flags.names.empty(), "--names=", flags.names,
                     " renames weights, and --state writes all tensors as they are; leave one of "
                     "them out");
  for (const char* const flag : {"--layout", "--state", "--names", "--max_shard_mb"})
    require<FlagError>(flags.format == ExportFormat::kSafetensors || !parser.given(flag),
                       parser.flag(flag).written, " is for safetensors; a file of the format ",
                       kExportFormats[static_cast<std::size_t>(flags.format)],
                       " has the weights as they are, so leave it out");
  return flags;
}

std::string names_text(const char* what, const std::vector<std::string>& names) {
  std::string text = names.empty() ? "" : cat(what, "\n");
  for (const std::string& name : names) text += cat("  ", shown(name), "\n");
  return text;
}

// Why tensors are left out, a line each.
std::string reasons_text(const std::vector<std::string>& reasons) {
  std::string text = reasons.empty() ? "" : "left out:\n";
  for (const std::string& reason : reasons) text += cat("  ", reason, "\n");
  return text;
}

// A file to write, and what to say of it.
struct Exported {
  std::string file;  // "": it is written already
  std::uint64_t bytes = 0;
  std::string text;
  ChosenWeights chosen;
  std::vector<std::string> permuted = {}, left_out = {};
};

Exported export_safetensors(const StoredCheckpoint& checkpoint, const ExportFlags& flags,
                            const std::optional<NameRules>& names) {
  const ExportOptions options{.layout = flags.layout.value_or(WeightLayout::kBelfry),
                              .weights = flags.weights,
                              .state = flags.state,
                              .names = names ? &*names : nullptr,
                              .partial = flags.partial};
  constexpr std::uint64_t kMb = 1'000'000;
  ExportedWeights exported =
      flags.max_shard_mb == 0
          ? export_weights(checkpoint, options)
          : export_weight_shards(checkpoint, options, flags.out,
                                 kMb * static_cast<std::uint64_t>(flags.max_shard_mb));
  return {
      std::move(exported.file),
      exported.bytes,
      cat("with ", exported.tensors, " tensors ",
          exported.shards > 0 ? cat("in ", exported.shards,
                                    exported.shards == 1 ? " file" : " files", " and an index, ")
                              : "",
          names ? cat("by the names of ", names->name)
                : cat("in the layout ", name_of(options.layout))),
      std::move(exported.chosen),
      std::move(exported.permuted),
      std::move(exported.left_out)};
}

// "image f32[?,28,28,1] -> logits f32[?,10]".
std::string ends_text(const PredictingGraph& graph) {
  std::vector<std::string> inputs, outputs;
  for (const Output& input : graph.inputs)
    inputs.push_back(cat(input.node().logical_name(), " ", input.type()));
  for (const auto& [name, output] : graph.outputs) outputs.push_back(cat(name, " ", output.type()));
  return cat(join(inputs), " -> ", join(outputs));
}

Exported export_plan(const StoredCheckpoint& checkpoint, const ExportFlags& flags) {
  const ExportedGraph graph = graph_of_checkpoint(checkpoint, flags.weights);
  std::string file = write_graph(graph.file.ends, graph.weights);
  const std::size_t bytes = file.size();
  return {std::move(file), bytes, cat("as a plan: ", ends_text(graph.file.ends)), graph.chosen};
}

// Writes it, and perhaps a second file beside it.
Exported export_onnx(const StoredCheckpoint& checkpoint, const ExportFlags& flags,
                     FileSystem& files) {
  const ExportedGraph graph = graph_of_checkpoint(checkpoint, flags.weights);
  write_onnx(graph.file.ends, graph.weights, files.resolve(flags.out), files);
  return {"", files.open(flags.out)->size(), cat("as ONNX: ", ends_text(graph.file.ends)),
          graph.chosen};
}

int run_export(const ExportFlags& flags) {
  const std::optional<NameRules> names = rules_of(flags.names);
  FileSystem& files = local_file_system();
  const bool is_onnx = flags.format == ExportFormat::kOnnx, in_shards = flags.max_shard_mb > 0;
  ExportPlace place{.file = flags.out, .folder = ""};
  if (flags.format == ExportFormat::kSafetensors) place = export_place(flags.out, in_shards, files);
  const bool to_stdout = flags.out == "-";
  require<IoError>(flags.overwrite || to_stdout || files.target_kind(place.file) != FileKind::kFile,
                   place.file,
                   " is there; nothing was changed: write elsewhere, or replace it (--overwrite)");
  const std::string beside = is_onnx ? onnx_data_path(flags.out) : "";
  require<IoError>(
      flags.overwrite || beside.empty() || files.target_kind(beside) != FileKind::kFile, beside,
      " is there, and may be replaced; nothing was changed: write elsewhere, "
      "or replace it (--overwrite)");
  const StoredCheckpoint checkpoint = read_checkpoint(checkpoint_at(flags.path, flags.checkpoint));
  if (!place.folder.empty()) files.create_directory(place.folder);
  OutputFiles outputs(files);
  OutputFile* const file = in_shards ? nullptr : outputs.open("OUT", place.file);
  require<FlagError>(!is_onnx || (file && file->replaces()), "OUT=", flags.out,
                     ": --format=onnx may need a second file beside OUT, so OUT must be a file; "
                     "name one");
  outputs.open("the tensors beside OUT", beside);
  const Exported exported = is_onnx ? export_onnx(checkpoint, flags, files)
                            : flags.format == ExportFormat::kPlan
                                ? export_plan(checkpoint, flags)
                                : export_safetensors(checkpoint, flags, names);
  if (!is_onnx && !in_shards) file->write(exported.file);
  outputs.finish();
  const std::string place_text = to_stdout ? "standard output" : in_shards ? flags.out : place.file;
  print(cat("wrote step ", checkpoint.head.manifest.shown_step(), ", ", exported.bytes,
            " bytes, to ", place_text, " ", exported.text, "\nof the checkpoint ",
            checkpoint.head.directory, ", the ", exported.chosen.what(), "\n",
            names_text("permuted:", exported.permuted), reasons_text(exported.left_out)),
        outputs.on_stdout() ? stderr : stdout);
  return 0;
}

struct ImportFlags {
  std::string help, in, like, out, names;
  std::optional<CheckpointChoice> checkpoint;
  ImportOptions options;
};

ImportFlags parse_import(Arguments arguments, const std::string& program) {
  ImportFlags flags;
  FlagParser parser(
      "Makes a checkpoint of a safetensors file: that of --like with its values. What the file "
      "lacks of the state, and the step, stay those of --like. With --names there need be no "
      "--like: the checkpoint has the weights alone.",
      program);
  parser.add_argument("IN", flags.in,
                      "the safetensors file, the index of several, or a folder with a model",
                      kNeeded);
  parser.add_argument("OUT", flags.out, "the checkpoint to make", kNeeded);
  parser.add("--like", flags.like, "PATH", kPathText);
  add_checkpoint_flag(parser, "", flags.checkpoint);
  add_layout(parser, flags.options.layout,
             "of the file: belfry or torch [what the file says, else belfry]");
  add_name_flags(parser, "IN", flags.names, flags.options.partial);
  parser.add("--overwrite", flags.options.overwrite,
             "replace the checkpoint that is there [false]");
  flags.help = parser.parse(arguments);
  require<FlagError>(
      flags.out != "-",
      "OUT=-: a checkpoint is a folder, so it cannot go to standard output; name one");
  check_names(parser, flags.names, flags.options.partial);
  require<FlagError>(!flags.help.empty() || !flags.like.empty() || !flags.names.empty(),
                     "--like=PATH is needed: a checkpoint with the variables of the new one; or "
                     "--names=NAME, for weights of another program");
  require<FlagError>(!flags.checkpoint || !flags.like.empty(), parser.flag("--checkpoint").written,
                     " is about --like=PATH; name that, too");
  return flags;
}

std::string needs_text(const NameRules& rules) {
  std::vector<std::string> needs;
  for (const auto& [option, value] : rules.needs) needs.push_back(cat("--", option, "=", value));
  return needs.empty() ? "" : cat("a program that loads it needs ", join(needs, " "), "\n");
}

int import_by_names(const ImportFlags& flags, const NameRules& rules) {
  std::optional<StoredCheckpoint> like;
  if (!flags.like.empty()) like = read_checkpoint(checkpoint_at(flags.like, flags.checkpoint));
  const ImportedWeights imported =
      import_named_weights(flags.in, rules, like ? &*like : nullptr, flags.out, flags.options);
  print(cat("made the checkpoint ", flags.out, ": ", imported.made, " weights of the ",
            imported.tensors, " tensors of ", flags.in, " by the names of ", rules.name, "\n",
            reasons_text(imported.left_out),
            names_text("missing, so these stay as they were:", imported.missing),
            names_text("of another shape, so these stay as they were:", imported.unlike),
            needs_text(rules)));
  return 0;
}

int run_import(const ImportFlags& flags) {
  if (const std::optional<NameRules> names = rules_of(flags.names))
    return import_by_names(flags, *names);
  const StoredCheckpoint like = read_checkpoint(checkpoint_at(flags.like, flags.checkpoint));
  const ImportedWeights imported = import_weights(flags.in, like, flags.out, flags.options);
  print(cat("saved ", flags.out, " with ", imported.tensors, " tensors of ", flags.in,
            ", read in the layout ", name_of(imported.layout), "\n",
            imported.widened > 0
                ? cat("of these ", imported.widened, " were converted to wider types, to the bit\n")
                : "",
            names_text("permuted:", imported.permuted),
            imported.begun.empty()
                ? ""
                : cat(imported.begun.size(), " moving averages begin at the imported weights\n"),
            imported.kept.size(), " tensors of the state are those of ", like.head.directory,
            "\n"));
  return 0;
}

}  // namespace

int run_checkpoint_command(Arguments arguments, const std::string& program) {
  const std::array<Subcommand, 5> commands = {
      {{"ls", "list checkpoints and their tensors", subcommand_of(parse_ls, run_ls)},
       {"verify", "check every checksum", subcommand_of(parse_verify, run_verify)},
       {"diff", "compare two checkpoints", subcommand_of(parse_diff, run_diff)},
       {"export", "write weights, or a model with them, as a file",
        subcommand_of(parse_export, run_export)},
       {"import", "make a checkpoint of a safetensors file",
        subcommand_of(parse_import, run_import)}}};
  return run_subcommand(commands, "Looks at checkpoints, and moves weights in and out of them.",
                        arguments, program);
}

}  // namespace belfry
