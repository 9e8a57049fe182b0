// Long rows of tokens, in files that may be larger than memory.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/data/vocabulary.h"

namespace belfry {

class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual std::int64_t size() const = 0;
  // Reads tokens from `begin` on, all of which must exist. Any thread may read. Throws BadRecord
  // for bytes that are no token, and IoError for a file that has changed.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  // For people: "1115394 characters, 65 different ones, of PATH".
  virtual std::string describe() const = 0;
  // The meaning of tokens; null if it is unknown.
  virtual const Vocabulary* vocabulary() const { return nullptr; }
};

// The bytes of a file. Only windows of it are read. All functions here borrow `files`.
std::unique_ptr<TokenStream> byte_tokens(FileSystem& files, const std::string& path);

// The characters of a file of UTF-8 text, numbered in the order of their code points. The file is
// read once, block by block; only the offset of every 4096th character is kept in memory. A byte
// that is no UTF-8 is a bad record; if it is left out, it counts as no character.
std::unique_ptr<TokenStream> character_tokens(FileSystem& files, const std::string& path,
                                              BadRecords& bad);

// The tokens that `vocabulary` makes of a text, which stay in memory. `what` ends the description:
// "PATH".
std::unique_ptr<TokenStream> encoded_tokens(std::string_view text,
                                            std::shared_ptr<const Vocabulary> vocabulary,
                                            const std::string& what);

// The tokens of llm.c's files, one file after another: a header of 1024 bytes (256 i32,
// little-endian: 20240520, version 1, the number of tokens), then tokens, u16. Only windows of them
// are read. A token of `most` or above is a bad record. `vocabulary` says what they stand for, if
// that is known. Throws IoError naming file, byte and what was expected for a bad header, or a file
// of another length than that says.
std::unique_ptr<TokenStream> llmc_tokens(FileSystem& files, std::vector<std::string> paths,
                                         std::int64_t most,
                                         std::shared_ptr<const Vocabulary> vocabulary = nullptr);

// `count` characters of text without a file: sentences of made-up words, a function of `count`.
std::unique_ptr<TokenStream> generated_text(std::int64_t count);

}  // namespace belfry
