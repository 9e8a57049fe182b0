// Input: a token file of llm.c.
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/token_stream.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(2 * size);  // tokens of two bytes become such of four
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  constexpr std::int64_t kMost = 50257;
  MemoryFileSystem files("/data");
  const auto file = files.create("/data/train.bin");
  file->append(std::as_bytes(std::span(data, size)));
  file->close();
  test::may_refuse([&] {
    const auto tokens = llmc_tokens(files, {"/data/train.bin"}, kMost);
    test::check(1024 + 2 * static_cast<std::size_t>(tokens->size()) == size, "wrong size");
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokens->size()));
    tokens->read(0, all);
    for (const std::int32_t token : all)
      test::check(token >= 0 && token < kMost, "a token that is none");
  });
  return 0;
}
