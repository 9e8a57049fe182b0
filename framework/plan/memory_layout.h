// Where the tensors of a plan are in memory.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

enum class BufferKind : std::uint8_t {
  kArena,
  kState,     // a variable
  kFeed,      // the caller's; on a GPU in its kept memory, once per slot of FeedSlots
  kConstant,  // on a GPU in its kept memory
  kFetch,
};

// The place of a value. An alias has the buffer of its original.
struct BufferRecord {
  BufferKind kind;
  int device;
  std::int64_t bytes;       // if it is sliced: of the largest shard
  std::int64_t offset = 0;  // in the arena; for kConstant and kFeed (slot 0) of GPUs in kept memory
  bool sliced = false;  // it has a copy per shard, at the same offset in each slice of the arena
  int index = 0;        // kFeed, kFetch
  const Node* node = nullptr;  // kState, kConstant
};

using BufferIndex = Index<BufferRecord>;

// The part of an arena that has equal slices, one per shard.
struct Slices {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;  // of each slice
};

// The place of the feeds of a GPU device: two slots of its kept memory, so that one can be filled
// while a step reads the other. Feeds come through two equal slots in pinned memory, in the kept
// memory of the first CPU. Slot s begins s * bytes after slot 0.
struct FeedSlots {
  static constexpr int kCount = 2;
  int device;
  int gpu;                                // the physical one; -1: the device is declared
  std::int64_t bytes;                     // of a slot
  std::int64_t offset;                    // in the device's kept memory
  std::int64_t on_host;                   // in the kept memory of the first CPU
  std::vector<BufferIndex> buffers = {};  // buffers of the feeds
};

struct MemoryLayout {
  Indexed<BufferRecord> buffers;
  Indexed<PlanNode, std::vector<BufferIndex>> buffer_of;  // of outputs
  Indexed<Launch, BufferIndex> workspaces;                // of launches with scratch memory
  // Per device. Only one run uses an arena at a time, so steps that run in turn share it. Each step
  // has its own kept memory.
  std::vector<std::int64_t> arena_bytes, kept_bytes;
  std::vector<Slices> slices;  // per device
  // Per device: bytes of the tensors that fetches are copied to. Fetches of GPUs count on the first
  // CPU.
  std::vector<std::int64_t> fetch_bytes;
  std::vector<FeedSlots> feed_slots;  // of the devices with feeds, in order

  BufferIndex buffer(Value value) const { return buffer_of[value.node][at(value.index)]; }
  // The start of a buffer in its arena.
  std::int64_t offset(const BufferRecord& record, int shard) const {
    if (!record.sliced) return record.offset;
    return slices[at(record.device)].begin + shard * slices[at(record.device)].bytes +
           record.offset;
  }
};

// The GPUs that have slots for feeds, in order.
std::vector<int> fed_gpus(const MemoryLayout& memory);

}  // namespace belfry
