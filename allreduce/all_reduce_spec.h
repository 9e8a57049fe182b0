// The grammar of --allreduce: which strategy combines tensors of which size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// The limit of a range that takes all remaining tensors.
inline constexpr std::int64_t kNoLimit = -1;

// One range of an AllReduceSpec.
struct AllReduceRange {
  std::string strategy;           // a registered name or alias, as written
  int chunks = 1;                 // per tensor
  std::int64_t limit = kNoLimit;  // largest tensor it takes, in bytes; the last range has none

  bool operator==(const AllReduceRange&) const = default;
};

// range (":" limit ":" range)*. A range is the name of a strategy, or name#chunks if the strategy
// can work in chunks (ring, shuffle, collective and their aliases). A limit is a number of bytes >=
// 1, with an optional suffix: K or k (1024), M, G or T (higher powers of 1024). A tensor goes to
// the first range whose limit it does not exceed. "pscpu:2k:pscpu#2:64k:xring": tensors of up to
// 2048 bytes by pscpu, up to 65536 bytes by pscpu in two chunks, larger ones by xring.
//
// Four differences from the all_reduce_spec of tf_cnn_benchmarks: limits are bytes (there, the text
// says bytes and the code counts elements); #n counts chunks, not shards; limits below 1, or that
// do not increase, are refused, because a range would match nothing; `auto` stands alone.
struct AllReduceSpec {
  std::vector<AllReduceRange> ranges;  // at least one

  // Whether the trainer chooses the strategy.
  bool is_auto() const { return ranges[0].strategy == "auto"; }
  // Whether any range uses this strategy.
  bool uses(std::string_view strategy) const;
};

// The most chunks that a tensor may be cut into.
inline constexpr int kMostChunks = 256;

// Throws InvalidArgument naming the spec and the wrong piece.
AllReduceSpec parse_all_reduce_spec(std::string_view text);

}  // namespace belfry
