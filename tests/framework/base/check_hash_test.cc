#include "belfry/framework/base/check_hash.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace belfry {
namespace check_hash_test {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

// Made with Debian's libxxhash 0.8.1, by a program of its own. That of nothing is XXH3's.
TEST(CheckHash, OfKnownBytes) {
  EXPECT_EQ(check_hash(""), 0x2d06800538d394c2U);
  EXPECT_EQ(check_hash("abc"), 0xf267cda02014e7ebU);
  const std::vector<std::byte> bytes = some_bytes(50'000);
  EXPECT_EQ(check_hash(bytes), 0x90613cb7680fc260U);
  EXPECT_EQ(check_hash_of_blocks(check_hashes_of_blocks(bytes, 2)), 0xa86994bff9b76bceU);
}

TEST(CheckHash, OfPartsByDifferentOwners) {
  const std::vector<std::byte> bytes = some_bytes(50'000);
  for (const std::size_t blocks : {1, 2, 3}) {
    const std::size_t cut = blocks * kCheckBlock * 4;
    std::vector<std::uint64_t> hashes = check_hashes_of_blocks(std::span(bytes).first(cut), 4);
    const auto rest = check_hashes_of_blocks(std::span(bytes).subspan(cut), 4);
    hashes.insert(hashes.end(), rest.begin(), rest.end());
    EXPECT_EQ(check_hash_of_blocks(hashes), check_hash(bytes));
  }
}

TEST(CheckHash, OfPieces) {
  const std::vector<std::byte> bytes = some_bytes(50'000);
  for (const std::size_t piece : {1, 100, 16'384, 16'385, 40'000, 50'000}) {
    CheckHash hash;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      hash.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    EXPECT_EQ(hash.value(), check_hash(bytes)) << piece;
    EXPECT_EQ(hash.value(), check_hash(bytes)) << "value() changes nothing";
    hash.reset();
    EXPECT_EQ(hash.value(), check_hash(""));
  }
}

TEST(CheckHash, OfTensors) {
  std::vector<float> values(10'000);
  std::iota(values.begin(), values.end(), 0.F);
  const Tensor tensor = Tensor(Shape{100, 100}, values);
  EXPECT_EQ(check_hash(tensor), check_hash(std::as_bytes(std::span(values))));
}

TEST(CheckHash, EachFlippedBitIsFound) {
  std::vector<std::byte> bytes = some_bytes(20'000);
  const std::uint64_t before = check_hash(bytes);
  for (std::size_t i = 0; i < bytes.size(); i += 997)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(check_hash(bytes), before) << i;
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
}

}  // namespace check_hash_test
}  // namespace belfry
