// Writes the tokens of a text (i32, little-endian), and the text of these tokens.
// scripts/compare_tokenizers compares both with what others make. Try: tokenize TOKENIZER TEXT
// TOKENS DECODED
#include <chrono>
#include <cstdio>
#include <string>

#include "belfry/trainers/data/tokenizer_file.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/util/output_file.h"
using namespace belfry;

struct TokenizeFlags {
  std::string tokenizer, text, tokens, decoded, help;
};

TokenizeFlags parse(std::span<const char* const> arguments, const std::string& program) {
  TokenizeFlags flags;
  FlagParser parser("Writes the tokens of a text, and the text of these tokens.", program);
  parser.add_argument("TOKENIZER", flags.tokenizer, "tokenizer.json, or its folder",
                      FlagParser::Needed::kYes);
  parser.add_argument("TEXT", flags.text, "the file with the text", FlagParser::Needed::kYes);
  parser.add_argument("TOKENS", flags.tokens, "a file to write", FlagParser::Needed::kYes);
  parser.add_argument("DECODED", flags.decoded, "a file to write", FlagParser::Needed::kYes);
  flags.help = parser.parse(arguments);
  return flags;
}

int tokenize(const TokenizeFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  OutputFiles outputs(local_file_system());
  OutputFile* const out = outputs.open("TOKENS", flags.tokens);
  OutputFile* const decoded = outputs.open("DECODED", flags.decoded);
  const auto bytes = local_file_system().read(flags.text);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto start = Clock::now();
  const auto vocabulary = read_tokenizer(flags.tokenizer);
  const double reading = seconds_since(start);
  const auto read = Clock::now();
  const std::vector<std::int32_t> tokens = vocabulary->encode(text);
  const double encoding = seconds_since(read);
  out->write({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]});
  decoded->write(vocabulary->decode(tokens));
  outputs.finish();
  std::printf("%zu tokens of %zu bytes, of %lld in all; read in %.3f s, encoded in %.3f s\n",
              tokens.size(), text.size(), static_cast<long long>(vocabulary->size()), reading,
              encoding);
  return 0;
}

int main(int argc, char** argv) { return run_program(argc, argv, parse, tokenize); }
