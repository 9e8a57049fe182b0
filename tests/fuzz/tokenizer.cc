// Input: a file tokenizer.json, which encodes a text.
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/tokenizer_file.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return (std::size_t{64} << 20) + 2 * size;  // the text of each of a million tokens
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  MemoryFileSystem files("/data");
  const auto file = files.create("/data/tokenizer.json");
  file->append(std::as_bytes(std::span(data, size)));
  file->close();
  test::may_refuse([&] {
    const auto tokenizer = read_tokenizer("/data/tokenizer.json", files);
    const std::vector<std::int32_t> tokens =
        tokenizer->encode("it's 12  a\xC3\xA9 <s>aa\n\n\xE2\x96\x81 \xFF ab");
    for (const std::int32_t token : tokens)
      test::check(token >= 0 && token < tokenizer->size(), "a token that is none");
    tokenizer->decode(tokens);
  });
  return 0;
}
