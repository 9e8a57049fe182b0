#include "belfry/framework/base/check_hash.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/base/xxh3_impl.h"

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little);  // hashes are hashed as they lie

using Xxh3 = std::uint64_t(const void*, std::size_t);

Xxh3* fastest_xxh3() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return detail::xxh3_avx2;
#endif
  return [](const void* bytes, std::size_t size) { return XXH3_64bits(bytes, size); };
}

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  static Xxh3* const fastest = fastest_xxh3();
  return fastest(bytes.data(), bytes.size());
}

}  // namespace

std::vector<std::uint64_t> check_hashes_of_blocks(std::span<const std::byte> part,
                                                  std::size_t bytes_per_element) {
  const std::size_t most = kCheckBlock * bytes_per_element;
  std::vector<std::uint64_t> hashes;
  hashes.reserve((part.size() + most - 1) / most);
  for (; !part.empty(); part = part.subspan(std::min(most, part.size())))
    hashes.push_back(xxh3(part.first(std::min(most, part.size()))));
  return hashes;
}

std::uint64_t check_hash_of_blocks(std::span<const std::uint64_t> hashes) {
  return xxh3(std::as_bytes(hashes));
}

std::uint64_t check_hash(std::span<const std::byte> bytes) {
  return check_hash_of_blocks(check_hashes_of_blocks(bytes, sizeof(float)));
}

std::uint64_t check_hash(std::string_view text) {
  return check_hash(std::as_bytes(std::span(text)));
}

std::uint64_t check_hash(const Tensor& tensor) {
  return check_hash_of_blocks(
      check_hashes_of_blocks({tensor.raw(), tensor.bytes()}, size_of(tensor.dtype())));
}

struct CheckHash::State {
  XXH3_state_t block, blocks;
};

CheckHash::CheckHash(std::size_t bytes_per_element)
    : state_(std::make_unique<State>()), bytes_per_block_(kCheckBlock * bytes_per_element) {
  reset();
}

CheckHash::CheckHash(CheckHash&&) noexcept = default;
CheckHash& CheckHash::operator=(CheckHash&&) noexcept = default;
CheckHash::~CheckHash() = default;

void CheckHash::reset() {
  XXH3_64bits_reset(&state_->block);
  XXH3_64bits_reset(&state_->blocks);
  in_block_ = 0;
}

void CheckHash::add(std::span<const std::byte> bytes) {
  const auto end_block = [&](std::uint64_t hash) {
    XXH3_64bits_update(&state_->blocks, &hash, sizeof hash);
  };
  while (!bytes.empty()) {
    const std::span<const std::byte> taken =
        bytes.first(std::min(bytes.size(), bytes_per_block_ - in_block_));
    bytes = bytes.subspan(taken.size());
    if (taken.size() == bytes_per_block_) {
      end_block(xxh3(taken));
      continue;
    }
    XXH3_64bits_update(&state_->block, taken.data(), taken.size());
    in_block_ += taken.size();
    if (in_block_ < bytes_per_block_) continue;
    end_block(XXH3_64bits_digest(&state_->block));
    XXH3_64bits_reset(&state_->block);
    in_block_ = 0;
  }
}

std::uint64_t CheckHash::value() const {
  if (in_block_ == 0) return XXH3_64bits_digest(&state_->blocks);
  XXH3_state_t blocks;
  XXH3_copyState(&blocks, &state_->blocks);
  const std::uint64_t hash = XXH3_64bits_digest(&state_->block);
  XXH3_64bits_update(&blocks, &hash, sizeof hash);
  return XXH3_64bits_digest(&blocks);
}

}  // namespace belfry
