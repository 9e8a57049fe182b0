// Input: text, UTF-8 or not, read as bytes and as characters.
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/token_stream.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(4 * size);  // tokens have four bytes
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  MemoryFileSystem files("/data");
  const auto file = files.create("/data/input.txt");
  file->append(std::as_bytes(std::span(data, size)));
  file->close();
  const auto read = [&](const TokenStream& tokens) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokens.size()));
    tokens.read(0, all);
    const std::string text = tokens.vocabulary()->decode(all);
    test::check(tokens.vocabulary()->encode(text) == all, "text does not come back");
    if (all.size() < 2) return text;
    std::vector<std::int32_t> half(all.size() / 2);
    tokens.read(tokens.size() - std::ssize(half), half);
    test::check(std::equal(half.begin(), half.end(), all.end() - std::ssize(half)),
                "a window differs from the whole");
    return text;
  };
  test::may_refuse([&] {
    const std::string text = read(*byte_tokens(files, "/data/input.txt"));
    test::check(std::equal(text.begin(), text.end(), reinterpret_cast<const char*>(data),
                           reinterpret_cast<const char*>(data) + size),
                "bytes differ");
  });
  test::may_refuse([&] {
    BadRecords bad({.most = 16});
    const std::string text = read(*character_tokens(files, "/data/input.txt", bad));
    test::check(text.size() + static_cast<std::size_t>(bad.count()) == size, "bytes are missing");
  });
  return 0;
}
