// The check hash, by which a bit that has flipped is found: in messages between processes, in
// variables of which all have copies, in what they agree on before they start. It is XXH3 of each
// block of 4,096 elements, and then XXH3 of the hashes of all blocks, in order. So those who have
// parts of a tensor, cut between blocks, hash their own parts, and exchange 8 bytes per block.
// It is no promise to later versions: hashes that are kept for them are in trainers/util/hash.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "belfry/framework/base/tensor.h"

namespace belfry {

constexpr std::size_t kCheckBlock = 4096;  // elements

// Of any bytes: their elements are taken to have 4 bytes.
std::uint64_t check_hash(std::span<const std::byte> bytes);
std::uint64_t check_hash(std::string_view text);
// Of the elements of a tensor, in any shape and type.
std::uint64_t check_hash(const Tensor& tensor);

// The hashes of the blocks of a part, which begins where a block does.
std::vector<std::uint64_t> check_hashes_of_blocks(std::span<const std::byte> part,
                                                  std::size_t bytes_per_element);
// The hash of the whole, whose blocks have these hashes.
std::uint64_t check_hash_of_blocks(std::span<const std::uint64_t> hashes);

// check_hash() of bytes that come piece by piece, cut anywhere.
class CheckHash {
 public:
  explicit CheckHash(std::size_t bytes_per_element = 4);
  CheckHash(CheckHash&&) noexcept;
  CheckHash& operator=(CheckHash&&) noexcept;
  ~CheckHash();

  void add(std::span<const std::byte> bytes);
  // Of what was added so far. More may be added.
  std::uint64_t value() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::size_t bytes_per_block_, in_block_ = 0;
};

}  // namespace belfry
