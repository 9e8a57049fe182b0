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
  // Those from `begin` on, all of which there must be. Any thread may read. Throws BadRecord for
  // what is no token, and IoError for a file that has changed.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  // For people: "1115394 characters, 65 different ones, of PATH".
  virtual std::string describe() const = 0;
  // Null if nobody knows what tokens stand for.
  virtual const Vocabulary* vocabulary() const { return nullptr; }
};

// The bytes of a file. Only windows of it are read. `files` is borrowed, as by all below.
std::unique_ptr<TokenStream> byte_tokens(FileSystem& files, const std::string& path);

// The characters of a file of UTF-8 text, numbered in the order of their code points. It is read
// once, block by block; kept is the place of each 4096th character. A byte that is no UTF-8 is a
// bad record; left out, it is no character.
std::unique_ptr<TokenStream> character_tokens(FileSystem& files, const std::string& path,
                                              BadRecords& bad);

// Those of token files of llm.c, one after another: a header of 1024 bytes (256 i32, little-endian:
// 20240520, version 1, the number of tokens), then tokens, u16. Only windows of them are read. A
// token of `most` or above is a bad record. So is the place where a file that is shorter than it
// says ends, or what stands behind the tokens of a longer one; whole tokens before it count.
// Throws IoError naming file, byte and what was expected if a header is none.
std::unique_ptr<TokenStream> llmc_tokens(FileSystem& files, std::vector<std::string> paths,
                                         std::int64_t most, BadRecords& bad);

// Text without a file, `count` characters: sentences of made-up words. A function of its length.
std::unique_ptr<TokenStream> generated_text(std::int64_t count);

}  // namespace belfry
