#include "belfry/trainers/commands/generate_command.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/weight_flags.h"
#include "belfry/trainers/models/gpt_text.h"
#include "belfry/trainers/names/named_weights.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/program/configuration.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/text_generator.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

struct GenerateFlags {
  std::string help, run, prompt;
  std::int64_t length = 200;
  DrawOptions draw;
  std::uint64_t seed = 1;
  DeviceSpec device = DeviceSpec::local("CPU", 0);
  WeightChoice weights = WeightChoice::kValidated;
  std::optional<CheckpointChoice> checkpoint;
  RunDirs data;
  models::GptText text;
};

// Flags that are not given have the values of the run.
void take_flags_of_run(const FlagParser& parser, const std::vector<OwnOption>& own,
                       GenerateFlags& flags) {
  const std::string run = run_of(flags.run);
  const std::optional<JsonValue> config =
      run.empty() ? std::nullopt : run_config(local_file_system(), run);
  if (!config) return;
  for (const auto& [name, value] : config->members()) {
    if (parser.given("--" + name)) continue;
    const std::string text = text_of(value);
    if (name == "data_dir") flags.data.data_dir = text;
    if (name == "bad_records")
      naming_flag<FlagError>(cat(run, "/config.json"),
                             [&] { flags.data.bad_records = parse_bad_records(text); });
    const auto option = std::ranges::find(own, name, &OwnOption::name);
    if (option == own.end() || text.empty()) continue;
    naming_flag<FlagError>(cat(run, "/config.json"), [&] {
      option->read({name, text, cat("--", name, "=", text), /*of_file=*/true});
    });
  }
}

// An imported checkpoint says with which flags a model computes what its own program computes.
void take_needed_flags(const FlagParser& parser, const std::vector<OwnOption>& own,
                       const GenerateFlags& flags) {
  const std::string checkpoint = checkpoint_at(flags.run, flags.checkpoint);
  for (const auto& [name, value] : needs_in(inspect_checkpoint(checkpoint).extra)) {
    const auto option = std::ranges::find(own, name, &OwnOption::name);
    if (option == own.end()) continue;
    const std::string flag = cat("--", name), wanted = cat(flag, "=", value);
    if (!parser.given(flag))
      naming_flag<FlagError>(checkpoint, [&] {
        option->read({name, value, wanted, /*of_file=*/true});
      });
    require<FlagError>(is_needed_value(option->value(), value), parser.flag(flag).written,
                       ": the weights of ", checkpoint, " need ", wanted,
                       "; with anything else they fit, and the text is wrong");
  }
}

GenerateFlags parse_generate(std::span<const char* const> arguments, const std::string& program) {
  GenerateFlags flags;
  FlagParser parser(
      "Continues a text by a run of gpt, token by token. Flags about model and text that are not "
      "given are those of the run; for a checkpoint without a run, give them.",
      program);
  parser.add_argument("RUN", flags.run,
                      "a run of gpt, or a checkpoint: of a run its best one, or the latest",
                      FlagParser::Needed::kYes);
  parser.add("--prompt", flags.prompt, "TEXT", "the text to continue [a line break]");
  parser.add("--length", flags.length, 1, 1 << 28, "N",
             "tokens to add, unless <|endoftext|> comes before [200]");
  parser.add_number(
      "--temperature", flags.draw.temperature, "a number from 0 on",
      [](double x) { return x >= 0; }, "X",
      "logits are divided by it; 0: always the most probable token [0.8]");
  parser.add("--top_k", flags.draw.top_k, 0, 1 << 28, "N",
             "draw from the N most probable tokens; 0: from all [0]");
  parser.add_number(
      "--top_p", flags.draw.top_p, "a number above 0, and at most 1",
      [](double x) { return x > 0 && x <= 1; }, "X",
      "draw from the most probable tokens that have this probability together [1]");
  parser.add("--seed", flags.seed, 0, std::numeric_limits<std::uint64_t>::max(), "N",
             "another seed gives another text [1]");
  parser.add_parsed(
      "--device", flags.device,
      [](const std::string& name) {
        return DeviceSpec::local("CPU", 0).merged_with(DeviceSpec(name));
      },
      "NAME", "cpu:0, or a GPU such as gpu:0 [cpu:0]");
  add_weight_flags(parser, "", flags.weights, flags.checkpoint);
  parser.group("model and text");
  const std::vector<OwnOption> own = flags.text.flags();
  for (const OwnOption& option : own)
    parser.add(option.row("the flag"), [option](const WrittenFlag& flag) { option.read(flag); },
               {});
  parser.add("--data_dir", flags.data.data_dir, "DIR",
             "the folder with the input.txt whose characters are the tokens [that of the run]");
  flags.help = parse_with_config(parser, arguments);
  if (!flags.help.empty()) return flags;
  take_flags_of_run(parser, own, flags);
  take_needed_flags(parser, own, flags);
  const bool says_tokens = parser.given("--tokens") || parser.given("--tokenizer") ||
                           parser.given("--data_dir") || !run_of(flags.run).empty();
  require<FlagError>(says_tokens, flags.run, " is a checkpoint without a run, and does not know ",
                     "what its tokens stand for; name their tokenizer (--tokenizer=PATH), or say ",
                     "--tokens=bytes");
  return flags;
}

std::vector<std::int32_t> encoded_prompt(const Vocabulary& vocabulary, const std::string& prompt) {
  return as_flag(cat("--prompt=", shown(prompt)), [&] { return first_tokens(vocabulary, prompt); });
}

// A checkpoint that lacks a variable, or has another shape of it, is of a model of another size.
void restore_model(Session& session, const std::string& checkpoint, WeightChoice weights) {
  try {
    restore_weights(session, checkpoint, weights);
  } catch (const Error& error) {
    ErrorFields fields = error.fields();
    if (fields.kind != ErrorKind::kFailed) throw;
    fields.advice = "say by flags, such as --preset and --layers, which model the checkpoint has";
    throw Error(fields);
  }
}

int run_generate(const GenerateFlags& flags) {
  const std::string checkpoint = checkpoint_at(flags.run, flags.checkpoint);
  const auto vocabulary = flags.text.vocabulary(flags.data);
  require<FlagError>(vocabulary != nullptr,
                     "--tokens=llmc: nobody knows what these tokens stand for; name their "
                     "--tokenizer");
  const models::GptSize size = flags.text.sized();
  require<FlagError>(vocabulary->size() <= size.vocabulary, "--vocabulary=", size.vocabulary,
                     ": the model knows as many tokens, but the text has ", vocabulary->size(),
                     "; name what the model was trained with (--tokens, --tokenizer, --data_dir)");
  const std::vector<std::int32_t> prompt = encoded_prompt(*vocabulary, flags.prompt);
  Graph graph;
  const TokenTower tower = build_token_tower(
      graph, {.step = [&](Tower& t, TokenStep& step) { return models::gpt_step(t, step, size); },
              .time = std::min(size.sequence_length, std::ssize(prompt) + flags.length),
              .device = flags.device});
  const DeviceSpec devices[] = {flags.device};
  Session session(graph, {.device_count = device_count(devices)});
  restore_model(session, checkpoint, flags.weights);
  token_generator(session, tower)
      ->generate(*vocabulary, prompt, flags.length, flags.draw,
                 combine_key(flags.seed, inspect_checkpoint(checkpoint).step),
                 [](std::string_view part) {
                   std::fwrite(part.data(), 1, part.size(), stdout);
                   std::fflush(stdout);
                 });
  std::fputs("\n", stdout);
  return 0;
}

}  // namespace

int run_generate_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse_generate, run_generate)(arguments, program);
}

}  // namespace belfry
