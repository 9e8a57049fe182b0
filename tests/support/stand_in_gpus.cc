#include "belfry/tests/support/stand_in_gpus.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include <sys/mman.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan_kernels/fused_update_kernel.h"
#include "belfry/framework/plan_kernels/host_kernel.h"
#include "belfry/tests/support/stand_in_communicators.h"
#include "belfry/tests/support/stand_in_stream.h"

namespace belfry::test {
namespace {

constexpr std::size_t kSpace = std::size_t{256} << 20;  // bytes of each GPU
constexpr std::size_t kAlignment = 256;

std::byte* reserve(int protection) {
  void* const memory =
      ::mmap(nullptr, kSpace, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require<OutOfMemory>(memory != MAP_FAILED, "no addresses for a stand-in of a GPU");
  return static_cast<std::byte*>(memory);
}

thread_local int used = -1;  // the GPU that this thread uses

}  // namespace

// The memory of a GPU, which lies behind `addresses`.
struct StandInGpus::Space {
  Space() : addresses(reserve(PROT_NONE)), memory(reserve(PROT_READ | PROT_WRITE)) {}
  ~Space() {
    ::munmap(addresses, kSpace);
    ::munmap(memory, kSpace);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  std::byte* const addresses;
  std::byte* const memory;
  std::map<std::size_t, std::size_t> blocks;  // bytes by offset
};

struct StandInGpus::InFlight {
  int stream;
  std::int64_t count;  // of the stream's work, with this one
  std::string served;
  std::vector<Access> accesses;
  std::shared_ptr<std::atomic<bool>> done;
};

StandInGpus::StandInGpus(int count, bool peers)
    : FakeGpus(count),
      peers_(peers),
      nccl_faults_(std::make_unique<NcclFaults>()),
      counters_(std::make_unique<Counters>()),
      failures_(static_cast<std::size_t>(count)) {
  for (int gpu = 0; gpu < count; ++gpu) spaces_.push_back(std::make_unique<Space>());
}

StandInGpus::~StandInGpus() = default;

StandInGpus::Calls StandInGpus::calls() const {
  const Counters& c = *counters_;
  return {c.allocations,  c.copies,   c.streams, c.events,   c.timers, c.prepared,      c.enqueued,
          c.copied,       c.records,  c.waits,   c.stamps,   c.drains, c.all_reduces,   c.exchanges,
          c.rank_gathers, c.captures, c.replays, c.gathered, c.checks, c.deterministic, c.fastest};
}

std::int64_t StandInGpus::in_use(int gpu) const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  if (gpu < 0)
    for (const auto& [address, size] : pinned_) bytes += size;
  else
    for (const auto& [offset, size] : spaces_[static_cast<std::size_t>(gpu)]->blocks) bytes += size;
  return static_cast<std::int64_t>(bytes);
}

int StandInGpus::waits_of(int gpu) const {
  const std::lock_guard lock(mutex_);
  return waits_[gpu];
}

void StandInGpus::lose_wait(int gpu, int number) {
  const std::lock_guard lock(mutex_);
  lost_wait_[gpu] = number;
  const std::lock_guard idling(idling_);
  held_ = true;
}

void StandInGpus::release() const {
  const std::lock_guard idling(idling_);
  held_ = false;
  idle_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  released_.notify_all();
}

void StandInGpus::idle() const {
  std::unique_lock idling(idling_);
  released_.wait(idling, [&] { return !held_; });
  const auto until = idle_until_;
  idling.unlock();
  std::this_thread::sleep_until(until);
  std::this_thread::sleep_for(slower_.load());
}

bool StandInGpus::loses_wait(int gpu) const {
  const std::lock_guard lock(mutex_);
  const auto lost = lost_wait_.find(gpu);
  const int number = waits_[gpu]++;
  return lost != lost_wait_.end() && lost->second == number;
}

void StandInGpus::fail(int gpu, const std::string& what) const {
  const std::lock_guard lock(mutex_);
  std::string& kept = failures_[static_cast<std::size_t>(gpu)];
  if (kept.empty()) kept = what;
}

void StandInGpus::mend() const {
  const std::lock_guard lock(mutex_);
  for (std::string& failure : failures_) failure.clear();
}

std::string StandInGpus::failure(int gpu) const {
  const std::lock_guard lock(mutex_);
  return failures_[static_cast<std::size_t>(gpu)];
}

void StandInGpus::enqueue(GpuStream& stream, std::function<void()> what) {
  dynamic_cast<StandInStream&>(stream).enqueue(std::move(what));
}

std::shared_ptr<std::atomic<bool>> StandInGpus::set_out(int stream, const Clock& clock,
                                                        const Work& work) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_,
                [](const InFlight& other) { return other.done->load(std::memory_order_acquire); });
  for (const InFlight& other : in_flight_)
    if (clock.of(other.stream) < other.count && conflict(work.accesses, other.accesses))
      refuse_race(other.served, work.served);
  auto done = std::make_shared<std::atomic<bool>>(false);
  if (work.noted)
    in_flight_.push_back({stream, clock.of(stream), work.served, work.accesses, done});
  return done;
}

void StandInGpus::host_uses(const std::string& served, const std::vector<Access>& accesses) const {
  const std::lock_guard lock(mutex_);
  for (const InFlight& other : in_flight_)
    if (!other.done->load(std::memory_order_acquire) && conflict(accesses, other.accesses))
      refuse_race(other.served, served);
}

// Refuses the call if this thread captures.
void StandInGpus::refuse_capture(const char* call) {
  if (capturing) capturing->refuse(cat(call, " in a thread that captures (900)"));
}

void* StandInGpus::allocate(int gpu, std::size_t bytes) const {
  refuse_capture("cudaMalloc");
  ++counters_->allocations;
  const std::lock_guard lock(mutex_);
  Space& space = *spaces_[static_cast<std::size_t>(gpu)];
  std::size_t offset = 0;
  for (const auto& [start, size] : space.blocks) {
    if (start - offset >= bytes) break;
    offset = (start + size + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (offset + bytes > kSpace) return nullptr;
  space.blocks[offset] = bytes;
  std::memset(space.memory + offset, 0xff, bytes);  // NaN until it is written
  return space.addresses + offset;
}

void StandInGpus::deallocate(int gpu, void* memory) const noexcept {
  if (capturing) capturing->spoil("cudaFree in a thread that captures (900)");
  const std::lock_guard lock(mutex_);
  Space& space = *spaces_[static_cast<std::size_t>(gpu)];
  space.blocks.erase(static_cast<std::size_t>(static_cast<std::byte*>(memory) - space.addresses));
}

void* StandInGpus::allocate_pinned(std::size_t bytes) const {
  refuse_capture("cudaHostAlloc");
  ++counters_->allocations;
  void* const memory =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory) return nullptr;
  const std::lock_guard lock(mutex_);
  pinned_[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
  return memory;
}

void StandInGpus::deallocate_pinned(void* memory) const noexcept {
  if (capturing) capturing->spoil("cudaFreeHost in a thread that captures (900)");
  const std::lock_guard lock(mutex_);
  pinned_.erase(reinterpret_cast<std::uintptr_t>(memory));
  std::free(memory);
}

// Null stays null: tensors without elements may have no memory.
std::byte* StandInGpus::behind(int gpu, const void* address) const {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  for (std::size_t other = 0; other < spaces_.size(); ++other) {
    const Space& space = *spaces_[other];
    const std::uintptr_t offset = value - reinterpret_cast<std::uintptr_t>(space.addresses);
    if (offset >= kSpace) continue;
    require<DeviceError>(gpu < 0 || gpu == static_cast<int>(other) || peers_, "GPU ", gpu,
                         " does not reach the memory of GPU ", other);
    return space.memory + offset;
  }
  if (gpu < 0 || !address) return reinterpret_cast<std::byte*>(value);
  const std::lock_guard lock(mutex_);
  const auto after = pinned_.upper_bound(value);
  const bool pinned =
      after != pinned_.begin() && value <= std::prev(after)->first + std::prev(after)->second;
  require<DeviceError>(pinned, "GPU ", gpu, " does not reach memory that is not pinned");
  return reinterpret_cast<std::byte*>(value);
}

void StandInGpus::copy(void* to, const void* from, std::size_t bytes) const {
  refuse_capture("cudaMemcpy");
  ++counters_->copies;
  std::memcpy(behind(-1, to), behind(-1, from), bytes);
}

std::unique_ptr<GpuStream> StandInGpus::make_stream(int gpu, std::span<const int>, bool) const {
  ++counters_->streams;
  return std::make_unique<StandInStream>(*this, gpu);
}

std::unique_ptr<GpuEvent> StandInGpus::make_event(int gpu) const {
  ++counters_->events;
  return std::make_unique<StandInEvent>(gpu);
}

std::unique_ptr<GpuEvent> StandInGpus::make_timer(int gpu) const {
  ++counters_->timers;
  return std::make_unique<StandInEvent>(gpu, true);
}

std::chrono::nanoseconds StandInGpus::elapsed(const GpuEvent& from, const GpuEvent& to) const {
  const auto &a = dynamic_cast<const StandInEvent&>(from),
             &b = dynamic_cast<const StandInEvent&>(to);
  require<DeviceError>(a.gpu() == b.gpu(), "time between events of two GPUs");
  return b.time() - a.time();
}

std::string StandInGpus::communicator_id() const {
  const std::lock_guard lock(mutex_);
  return cat("id ", ids_++);
}

std::unique_ptr<GpuCommunicators> StandInGpus::make_communicators(
    std::span<const int> gpus, std::chrono::duration<double>, const RankWorld& world,
    const std::atomic<bool>& failed) const {
  const bool alone = world.size == 0;
  std::shared_ptr<RankMeetings> all;
  {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<RankMeetings>& known = met_[alone ? cat("alone ", ids_++) : world.id];
    all = known.lock();
    if (!all) known = all = std::make_shared<RankMeetings>(alone ? gpus.size() : world.size);
  }
  return std::make_unique<StandInCommunicators>(*this, gpus, std::move(all), world.first, failed);
}

void StandInGpus::use(int gpu) const { used = gpu; }

void StandInGpus::require_used(int gpu) const {
  require<DeviceError>(used == gpu, "this thread uses GPU ", used, ", not ", gpu);
}

// As kernels of the module do; except Cast, whose host kernel takes no padded rows.
bool StandInGpus::takes_pitches(const Op& op) const {
  static const std::set<std::string_view> names{
      "Accuracy",         "BroadcastMatMul",           "CrossEntropyWithGradient",     "MatMul",
      "MatMulTransposeA", "SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad"};
  return takes_pitches_ && names.contains(op.name);
}

GpuRun StandInGpus::prepare(int gpu, KernelPlan& plan, bool deterministic,
                            std::span<const std::int64_t> pitches) const {
  refuse_capture("a search for algorithms");
  ++counters_->prepared;
  ++(deterministic ? counters_->deterministic : counters_->fastest);
  const Op& op = plan.op();
  if (op.name == lacking_) return {};
  KernelRun kernel = prepare_kernel(plan, false, pitches);
  Memory memory{.writes = static_cast<std::size_t>(op.writes),
                .workspace = static_cast<std::size_t>(plan.workspace_bytes()),
                .step = op.random};
  const auto bytes = [&](const TensorType& type, std::size_t number) {
    const std::int64_t pitch = pitches.empty() ? 0 : pitches[number];
    return pitch == 0 ? type.bytes() : type.bytes() / type.shape.back() * pitch;
  };
  for (std::size_t i = 0; i < plan.inputs(); ++i) memory.inputs.push_back(bytes(plan.input(i), i));
  for (std::size_t i = 0; i < plan.outputs(); ++i)
    memory.outputs.push_back(bytes(plan.output(i), plan.inputs() + i));
  if (op.collective && !op.ranks) {
    memory.participants = static_cast<std::size_t>(op.collective(plan.node()));
    memory.element = size_of(plan.dtype());
  }
  return in_stream(gpu, std::move(kernel), std::move(memory));
}

GpuRun StandInGpus::prepare_fused(int gpu, const PlanGraph& plan, const PlanNode& node) const {
  ++counters_->prepared;
  Memory memory{.writes = static_cast<std::size_t>(node.writes())};
  for (const TensorType& input : plan.input_types(node)) memory.inputs.push_back(input.bytes());
  for (const TensorType& output : node.types) memory.outputs.push_back(output.bytes());
  return in_stream(gpu, prepare_fused_update(plan, node, false), std::move(memory));
}

std::vector<Access> StandInGpus::Memory::accesses(std::span<std::byte* const> at_inputs,
                                                  std::span<std::byte* const> at_outputs,
                                                  WorkRange range) const {
  std::vector<Access> all;
  if (participants == 0) {
    for (std::size_t i = 0; i < at_inputs.size(); ++i)
      all.push_back(accessed(at_inputs[i], inputs[i], i < writes));
    for (std::size_t i = 0; i < at_outputs.size(); ++i)
      all.push_back(accessed(at_outputs[i], outputs[i], true));
    return all;
  }
  EndToEnd tensors;
  for (std::size_t i = 0; i < inputs.size(); i += participants)
    tensors.append(inputs[i] / static_cast<std::int64_t>(element));
  tensors.for_each(range, [&](std::size_t tensor, std::int64_t begin, std::int64_t end) {
    const auto from = static_cast<std::size_t>(begin) * element;
    const auto bytes = static_cast<std::size_t>(end) * element - from;
    for (std::size_t i = tensor * participants; i < (tensor + 1) * participants; ++i) {
      all.push_back(accessed(at_inputs[i] + from, bytes, false));
      all.push_back(accessed(at_outputs[i] + from, bytes, true));
    }
  });
  return all;
}

GpuRun StandInGpus::in_stream(int gpu, KernelRun run, Memory memory) const {
  const auto kernel = std::make_shared<const KernelRun>(std::move(run));
  return [this, gpu, kernel, memory = std::move(memory)](const KernelPointers& p,
                                                         GpuStream& stream) {
    ++counters_->enqueued;
    auto& in = dynamic_cast<StandInStream&>(stream);
    require<DeviceError>(in.gpu() == gpu, "a kernel of another GPU is enqueued");
    require<DeviceError>(reinterpret_cast<std::uintptr_t>(p.workspace()) % kAlignment == 0,
                         "workspaces of libraries begin at ", kAlignment, " bytes");
    std::vector<std::byte*> at_inputs, at_outputs;
    for (void* const input : p.mutable_inputs()) at_inputs.push_back(behind(gpu, input));
    for (void* const output : p.all_outputs()) at_outputs.push_back(behind(gpu, output));
    std::vector<Access> accesses = memory.accesses(at_inputs, at_outputs, {p.begin(), p.end()});
    const std::vector<void*> inputs(at_inputs.begin(), at_inputs.end());
    const std::vector<void*> outputs(at_outputs.begin(), at_outputs.end());
    std::byte* const workspace = behind(gpu, p.workspace());
    accesses.push_back(accessed(workspace, memory.workspace, true));
    if (memory.step) accesses.push_back(accessed(&in.step(), sizeof in.step(), false));
    in.enqueue(
        [kernel, inputs, outputs, workspace, range = WorkRange{p.begin(), p.end()},
         first_row = p.first_row(), step = memory.step ? &in.step() : nullptr] {
          (*kernel)(KernelPointers(inputs, outputs, workspace, range, step ? *step : 0, first_row));
        },
        std::move(accesses));
  };
}

}  // namespace belfry::test
