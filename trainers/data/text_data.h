// Text to predict the next token of.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/data/token_stream.h"

namespace belfry {

// Windows of a row of tokens, from `begin` to `end` of it.
struct TokenWindows {
  std::shared_ptr<const TokenStream> tokens;
  std::int64_t begin = 0, end = 0;
  std::int64_t length = 64;  // tokens of a window
  // Samples of an epoch; 0: as many as there are windows without overlap, as for tests.
  std::int64_t per_epoch = 0;
  std::shared_ptr<BadRecords> bad = {};  // null: none may be left out
};

// Fields: "tokens" and "label" i32 [length], the second one token further on. Samples are windows
// without overlap, one after another. Training takes each window from anywhere instead, at a
// place that is a function of seed, epoch and sample. A window with a bad record gives way to the
// next. Only windows are read. Throws InvalidArgument for a row that has no window.
std::unique_ptr<Dataset> token_windows(TokenWindows windows);

namespace data {

struct TextOptions {
  // "characters" or "bytes" of the file input.txt, of which the first nine tenths train and the
  // rest are for tests; or "llmc": token files of llm.c, *train*.bin and *val*.bin.
  std::string tokens = "characters";
  std::int64_t length = 64;
  std::int64_t per_epoch = 0;   // samples of a training epoch: TokenWindows::per_epoch
  std::int64_t vocabulary = 0;  // different tokens that the model knows
};

// A source of such windows for recipes. With RunDirs::data_dir, from the files in it, else
// generated text. They are read when samples are first needed, which throws NotFound or IoError
// naming the file, and OptionMistake for text with more different tokens than `vocabulary`.
// Dataset::check() does so, too, if the files are there. Data for training and tests that one
// source makes read input.txt once while both live: those for training count its bad records.
DatasetFactory text(TextOptions options);

}  // namespace data
}  // namespace belfry
