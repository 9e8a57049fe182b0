#include "belfry/trainers/runs/send_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Writes the files of a checkpoint that another process sends. Without commit() they vanish.
class ReceivedCheckpoint {
 public:
  explicit ReceivedCheckpoint(std::string path)
      : path_(std::move(path)), temporary_(temporary_name(path_)) {
    local_file_system().create_directory(temporary_);
  }
  ~ReceivedCheckpoint() {
    if (!committed_) try {
        remove_tree(local_file_system(), temporary_);
      } catch (const IoError&) {  // the next run tidies
      }
  }
  ReceivedCheckpoint(const ReceivedCheckpoint&) = delete;
  ReceivedCheckpoint& operator=(const ReceivedCheckpoint&) = delete;

  void begin_file(const std::string& name) {
    file_ = local_file_system().create(cat(temporary_, "/", name));
  }
  void append(std::span<const std::byte> bytes) { file_->append(bytes); }
  void end_file() { file_->close(); }
  void commit() {
    local_file_system().rename(temporary_, path_);
    committed_ = true;
  }

 private:
  const std::string path_, temporary_;
  std::unique_ptr<WritableFile> file_;
  bool committed_ = false;
};

// Sends bytes of one process to some others. All call it: those receive them in `bytes`.
void send_range(Processes& processes, const CheckpointRoute& route, std::span<std::byte> bytes) {
  const std::uint64_t key = processes.next_number();
  const int rank = processes.rank();
  if (rank == route.from) {
    const std::atomic<std::uint64_t> runs{0};
    MemoryBlock memory(host_allocator(), bytes.size());
    memory.store(bytes.data(), 0, bytes.size());
    processes.parts().publish(
        key, {.memory = &memory, .first = 0, .bytes = bytes.size(), .runs = &runs});
    processes.parts().withdraw(key);  // keeps a copy until all have it
  } else if (route.leads_to(rank)) {
    std::vector<std::span<std::byte>> parts(static_cast<std::size_t>(processes.size()));
    parts[static_cast<std::size_t>(route.from)] = bytes;
    processes.fetch(key, 0, parts);
  }
  processes.gather("");
}

}  // namespace

bool CheckpointRoute::leads_to(int rank) const { return std::ranges::find(to, rank) != to.end(); }

// Ranges keep the memory small that a transfer takes.
void send_checkpoint(Processes& processes, const CheckpointRoute& route, const std::string& path) {
  constexpr std::uint64_t kRange = 16 << 20;
  FileSystem& files = local_file_system();
  const bool sends = processes.rank() == route.from;
  const bool receives = route.leads_to(processes.rank());
  JsonValue sizes = JsonValue::object();
  if (sends)
    for (const std::string& name : files.list(path))
      sizes.set(name, files.open(cat(path, "/", name))->size());
  sizes = JsonValue::parse(processes.gather(sizes.str())[static_cast<std::size_t>(route.from)]);
  std::optional<ReceivedCheckpoint> received;
  if (receives) received.emplace(path);
  for (const auto& [name, size] : sizes.members()) {
    const std::unique_ptr<ReadableFile> file = sends ? files.open(cat(path, "/", name)) : nullptr;
    if (received) received->begin_file(name);
    const std::uint64_t end = size.unsigned_integer();
    for (std::uint64_t at = 0; at < end; at += kRange) {
      std::vector<std::byte> bytes(sends || receives ? std::min(kRange, end - at) : 0);
      if (file)
        require<IoError>(file->read(bytes) == bytes.size(), path, "/", name,
                         " became shorter while it was sent");
      send_range(processes, route, bytes);
      if (received) received->append(bytes);
    }
    if (received) received->end_file();
  }
  if (received) received->commit();
  processes.gather("");  // so that the others of that host find it
}

}  // namespace belfry
