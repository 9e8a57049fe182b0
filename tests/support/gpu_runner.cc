#include "belfry/tests/support/gpu_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/op.h"

namespace belfry::test {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::byte kGuard{0xa5};  // behind each tensor, 256 bytes at least

// Memory of the host, where it is in the arena, and whether a kernel may write there.
struct Block {
  std::size_t bytes = 0, offset = 0;
  bool written = false, read_back = false;
};

using Blocks = std::map<std::byte*, Block>;

}  // namespace

struct GpuRunner::State {
  State(const GpuBackend& of, int number)
      : backend(of), gpu(number), stream(of.make_stream(number, {})) {
    counter = static_cast<std::int64_t*>(backend.allocate_pinned(kAlignment));
    stamp = Stamp(*counter);
  }
  ~State() {
    stream.reset();
    release();
    backend.deallocate_pinned(counter);
  }

  void release() {
    if (arena) backend.deallocate(gpu, arena);
    if (sent) backend.deallocate_pinned(sent);
    if (received) backend.deallocate_pinned(received);
    arena = sent = received = nullptr;
  }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity) return;
    release();
    const std::size_t most = std::max(2 * std::exchange(capacity, 0), bytes);
    arena = static_cast<std::byte*>(backend.allocate(gpu, most));
    sent = static_cast<std::byte*>(backend.allocate_pinned(most));
    received = static_cast<std::byte*>(backend.allocate_pinned(most));
    require<OutOfMemory>(arena && sent && received, "no ", most, " bytes for a test on GPU ", gpu);
    capacity = most;
  }

  void await() {
    for (int i = 0; !stamp.reached(epoch); ++i) {
      if (i < 10'000) continue;
      stream->check();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // Enqueues a copy to the GPU, `enqueue` and a copy back, and waits.
  template <class Enqueue>
  void run(std::size_t bytes, const Enqueue& enqueue) {
    try {
      stream->copy(arena, sent, bytes);
      enqueue();
      stream->copy(received, arena, bytes);
      stream->stamp(*counter, ++epoch);
      await();
      stream->check_inputs();
    } catch (...) {
      stream->drain();
      throw;
    }
  }

  const GpuBackend& backend;
  int gpu;
  std::unique_ptr<GpuStream> stream;
  std::int64_t* counter = nullptr;
  Stamp stamp;
  std::int64_t epoch = 0;
  std::size_t capacity = 0;
  std::byte* arena = nullptr;                      // on the GPU
  std::byte *sent = nullptr, *received = nullptr;  // the arena before and after a run
};

namespace {

// One block per memory: an output may take the memory of an input.
Blocks blocks_of(const KernelPointers& p, const std::vector<std::int64_t>& inputs,
                 const std::vector<std::int64_t>& outputs, std::int64_t workspace,
                 std::size_t writes) {
  Blocks blocks;
  const auto add = [&](void* at, std::int64_t bytes, bool written, bool read_back) {
    if (bytes == 0) return;
    Block& block = blocks[static_cast<std::byte*>(at)];
    block.bytes = std::max(block.bytes, static_cast<std::size_t>(bytes));
    block.written |= written;
    block.read_back |= read_back;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add(p.mutable_inputs()[i], inputs[i], i < writes, i < writes);
  for (std::size_t i = 0; i < outputs.size(); ++i) add(p.all_outputs()[i], outputs[i], true, true);
  add(p.workspace(), workspace, true, false);
  std::size_t offset = kAlignment;
  for (auto& [at, block] : blocks) {
    block.offset = offset;
    offset += (block.bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;
  }
  return blocks;
}

std::vector<void*> moved(std::span<void* const> pointers, const std::vector<std::int64_t>& bytes,
                         const Blocks& blocks, std::byte* arena) {
  std::vector<void*> result;
  for (std::size_t i = 0; i < pointers.size(); ++i)
    result.push_back(
        bytes[i] == 0 ? nullptr : arena + blocks.at(static_cast<std::byte*>(pointers[i])).offset);
  return result;
}

}  // namespace

GpuRunner::GpuRunner(const GpuBackend& backend, int gpu)
    : state_(std::make_unique<State>(backend, gpu)) {}

GpuRunner::~GpuRunner() = default;

KernelRun GpuRunner::kernel(const KernelPlan& plan, GpuRun run) {
  std::vector<std::int64_t> inputs, outputs;
  for (std::size_t i = 0; i < plan.inputs(); ++i) inputs.push_back(plan.input(i).bytes());
  for (std::size_t i = 0; i < plan.outputs(); ++i) outputs.push_back(plan.output(i).bytes());
  state_->stream->serve(plan.node());  // errors name it; the node served before may be gone
  state_->stream->get_ready(run);
  return [&state = *state_, &node = plan.node(), run = std::move(run), inputs, outputs,
          workspace = plan.workspace_bytes()](const KernelPointers& p) {
    const auto writes = static_cast<std::size_t>(node.op().writes);
    const Blocks blocks = blocks_of(p, inputs, outputs, workspace, writes);
    std::size_t bytes = kAlignment;
    for (const auto& [at, block] : blocks)
      bytes = std::max(bytes, block.offset + block.bytes + kAlignment);
    state.reserve(bytes);
    std::memset(state.sent, static_cast<int>(kGuard), bytes);
    for (const auto& [at, block] : blocks) std::memcpy(state.sent + block.offset, at, block.bytes);

    const std::vector<void*> in = moved(p.mutable_inputs(), inputs, blocks, state.arena);
    const std::vector<void*> out = moved(p.all_outputs(), outputs, blocks, state.arena);
    std::byte* const scratch =
        workspace == 0 ? nullptr : state.arena + blocks.at(p.workspace()).offset;
    state.backend.use(state.gpu);
    state.stream->serve(node);
    state.run(bytes, [&] {
      state.stream->set_step(*state.stream, p.step());
      run(KernelPointers(in, out, scratch, {p.begin(), p.end()}, p.step(), p.first_row()),
          *state.stream);
    });

    for (const auto& [at, block] : blocks) {
      std::byte* const received = state.received + block.offset;
      if (block.read_back) std::memcpy(at, received, block.bytes);
      // Only inputs, and bytes between tensors, are left to compare.
      if (block.written) std::memcpy(received, state.sent + block.offset, block.bytes);
    }
    require<InternalError>(std::memcmp(state.sent, state.received, bytes) == 0, node.describe(),
                           ": its kernel writes to its inputs, or beside its tensors");
  };
}

}  // namespace belfry::test
