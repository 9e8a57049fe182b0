#include "belfry/framework/run/gpu_executor.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/plan_kernels/rank_launch.h"
#include "belfry/framework/run/failed_launch.h"
#include "belfry/framework/run/output_watch.h"
#include "belfry/framework/trace/gpu_timers.h"

namespace belfry {

using Kind = Command::Kind;

namespace {

// Names the device in errors. The stream knows the node, but not the device, which may be one of
// several on its GPU.
void check_inputs(GpuStream& stream, const Device& device) try {
  stream.check_inputs();
} catch (FailedLaunch& launch) {
  launch.device = device.spec;
  rethrow_from({.device = device.spec.str()});
}

}  // namespace

GpuExecutor::GpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                         const FeedStaging& staging)
    : linked_(linked),
      plan_(*linked.plan),
      run_(run),
      runtime_(runtime),
      staging_(staging),
      streams_(plan_.strands.size()),
      places_(linked.programs.size()),
      segments_(plan_.commands.segments.size()) {
  make_streams();
  name_ranges();
  for (const StrandIndex strand : plan_.commands.events) {
    const Device& device = *runtime.devices[at(plan_.strands[strand].device)];
    events_.push_back(device.backend->make_event(device.gpu));
  }
  const auto by_rank = [](const Launch& launch) { return launch.rank != nullptr; };
  if (std::ranges::any_of(plan_.launches, by_rank))
    ranks_ = make_nccl_ranks(linked, run, runtime,
                             {.stream = [this](StrandIndex s) -> GpuStream& { return stream(s); },
                              .stamp = [this](StrandIndex s) { return streams_[s].finished; },
                              .await_first = [this](StrandIndex s) { return await(s, 0); }});
}

GpuExecutor::~GpuExecutor() { runtime_.with_ranks.erase(this); }

void GpuExecutor::make_streams() {
  constexpr std::size_t kLine = 64;
  counters_ = MemoryBlock(runtime_.gpus->counters(), kLine * plan_.strands.size());
  for (const StrandIndex s : plan_.strands.indices()) {
    const Strand& strand = plan_.strands[s];
    if (strand.gpu < 0) continue;
    require(plan_.locks == LockDuration::kWholeRun,
            "a step of LockDuration::kEachVariable has work on ",
            runtime_.devices[at(strand.device)]->spec, ", but runs on CPUs alone");
    std::byte* const counter = counters_.data() + kLine * at(s.value());
    streams_[s] = {&runtime_.gpus->of(strand.device, strand.communicates),
                   Stamp(*reinterpret_cast<std::int64_t*>(counter))};
  }
  for (const Launch& launch : plan_.launches)
    if (GpuStream* const stream = streams_[launch.strand].stream)
      stream->get_ready(launch.rank ? launch.rank->sum() : launch.enqueue);
}

void GpuExecutor::name_ranges() {
  launch_ranges_.resize(plan_.launches.size());
  segment_ranges_.resize(plan_.commands.segments.size());
  if (!RangeName("step")) return;  // no profiler, so no texts
  const auto name = [this](LaunchIndex l) { return plan_.node(plan_.launches[l].node).name(); };
  for (const LaunchIndex l : plan_.launches.indices())
    if (streams_[plan_.launches[l].strand].stream) launch_ranges_[l] = RangeName(name(l));
  for (std::size_t s = 0; s < segment_ranges_.size(); ++s) {
    const auto& launches = plan_.commands.segments[s].launches;
    segment_ranges_[s] =
        RangeName(cat("segment: ", name(launches.front()), " to ", name(launches.back())));
  }
}

void GpuExecutor::run(int thread) {
  const LinkedPlan::GpuProgram& program = linked_.program(thread);
  const Device& device = *runtime_.devices[at(program.device)];
  try {
    device.backend->use(device.gpu);
    if (run_.recording) {
      const auto own = std::ranges::find(plan_.strands, device.gpu, &Strand::gpu);
      tie_clock(stream(StrandIndex(own - plan_.strands.begin())), device.gpu, *run_.recording);
    }
    std::atomic<const Command*>& place = places_[at(thread - linked_.workers)];
    if (!follow(replays() ? program.in_segments : program.commands, place)) run_.poison();
    place.store(nullptr, std::memory_order_relaxed);
  } catch (...) {
    run_.fail();
  }
}

// False if another thread failed.
bool GpuExecutor::follow(const std::vector<Command>& commands, std::atomic<const Command*>& place) {
  for (auto command = commands.begin(); command != commands.end(); ++command) {
    place.store(&*command, std::memory_order_relaxed);
    if (command->kind == Kind::kBeginSegment) {
      if (run_.failed()) return false;
      replay(*command);
      command += command->position;  // to the segment's end
    } else if (!act(*command)) {
      return false;
    }
  }
  return true;
}

// The stream of the command's strand. Its errors then name the command's launch.
GpuStream& GpuExecutor::serving(const Command& command) const {
  GpuStream& of = stream(command.strand);
  of.serve(linked_.node_of(command.launch));
  return of;
}

// False if another thread failed.
bool GpuExecutor::act(const Command& command) {
  const StrandIndex strand = command.strand;
  switch (command.kind) {
    case Kind::kWait:
      run_.await(strand, command.position, linked_.spin);
      return !run_.failed();  // a failure may have ended the wait
    case Kind::kLaunch:
      if (run_.failed()) return false;
      linked_.guard->before(command.launch);
      if (plan_.changes_variables(command.launch))
        run_.has_written.store(true, std::memory_order_relaxed);
      enqueue(command.launch);
      break;
    case Kind::kSignal: run_.signal(strand, command.position); break;
    case Kind::kExpect: ranks_->watch().expect(strand, run_.epoch(strand, command.position)); break;
    case Kind::kWaitEvent: serving(command).wait(*events_[at(command.number)]); break;
    case Kind::kWaitFeeds: serving(command).wait(staging_.copied(command.number, run_.slot)); break;
    case Kind::kSetStep:
      serving(command).set_step(stream(StrandIndex(command.number)), run_.step);
      break;
    case Kind::kRecord: stream(strand).record(*events_[at(command.number)]); break;
    case Kind::kStamp:
      stream(strand).stamp(streams_[strand].finished.counter(),
                           run_.epoch(strand, command.position));
      break;
    case Kind::kWaitStamp:
      if (!await(strand, command.position)) return false;
      check_inputs(stream(strand), *runtime_.devices[at(plan_.strands[strand].device)]);
      break;
    case Kind::kWake:
    case Kind::kBeginSegment:
    case Kind::kEndSegment: break;  // see follow()
  }
  return true;
}

void GpuExecutor::enqueue(LaunchIndex launch) try {
  const ProfilerRange range(launch_ranges_[launch]);
  const LinkedLaunch& linked = linked_.launch(launch);
  GpuStream& of = stream(linked.launch->strand);
  of.serve(linked_.node_of(launch));
  const KernelPointers pointers = linked.pointers(linked.launch->range, 0);
  if (run_.watch) {
    linked.launch->enqueue(pointers, of);
    of.drain();
    return run_.watch->look_at(launch, 0, linked.outputs);
  }
  if (!run_.recording) return linked.launch->enqueue(pointers, of);
  Recording::OnGpu& timed = run_.recording->on_gpu[launch];
  run_.recording->launches[launch].start = run_.recording->now();
  of.record(*timed.start);
  linked.launch->enqueue(pointers, of);
  of.record(*timed.end);
  run_.recording->launches[launch].end = run_.recording->now();
} catch (...) {
  const Launch& failed = plan_.launches[launch];
  rethrow_with_launch(*plan_.node(failed.node).node,
                      runtime_.devices[at(plan_.strands[failed.strand].device)]->spec);
}

void GpuExecutor::replay(const Command& begin) {
  const ProfilerRange range(segment_ranges_[at(begin.number)]);
  const Segment& segment = plan_.commands.segments[at(begin.number)];
  if (segment.writes) run_.has_written.store(true, std::memory_order_relaxed);
  for (const LaunchIndex launch : segment.launches) linked_.guard->before(launch);
  serving(begin).launch(*segments_[at(begin.number)][at(run_.slot)]);
}

void GpuExecutor::nap() {
  for (const StreamOf& of : streams_)
    if (of.stream) of.stream->check();
  if (ranks_) ranks_->watch().check();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

bool GpuExecutor::await(StrandIndex strand, int position) {
  SpinTimer timer(linked_.spin);
  while (!reached(strand, position)) {
    if (run_.failed()) return false;
    if (timer.expired()) nap();
  }
  return true;
}

bool GpuExecutor::must_capture(bool watched) {
  run_.replays = warm_ && !watched && !refused_.load() && !plan_.commands.segments.empty();
  if (!run_.replays || captured_[at(run_.slot)]) return false;
  if (ranks_) runtime_.with_ranks.insert(this);
  return true;
}

// Call it while nobody polls the streams: that would end the capture.
void GpuExecutor::capture(int thread) {
  static const RangeName kCapture("capture");
  const ProfilerRange range(kCapture);
  const LinkedPlan::GpuProgram& program = linked_.program(thread);
  const Device& device = *runtime_.devices[at(program.device)];
  GpuStream* origin = nullptr;  // of the segment that is being captured
  try {
    device.backend->use(device.gpu);
    for (const Command& command : program.in_segments) {
      if (command.kind == Kind::kBeginSegment) {
        const Segment& segment = plan_.commands.segments[at(command.number)];
        origin = &stream(command.strand);
        origin->begin_capture(linked_.node_of(segment.launches.front()),
                              linked_.node_of(segment.launches.back()));
      } else if (command.kind == Kind::kEndSegment) {
        auto& captured = segments_[at(command.number)][at(run_.slot)];
        captured = origin->end_capture();
        origin = nullptr;
        if (!captured) refused_.store(true);
      } else if (origin && command.kind == Kind::kLaunch) {
        enqueue(command.launch);  // captures alone; nothing is written yet
      } else if (origin) {
        act(command);
      }
    }
  } catch (...) {
    if (origin) origin->abandon_capture();
    run_.fail();
  }
}

void GpuExecutor::connect(int thread, const std::function<void(int thread)>& ranks) {
  const Device& device = *runtime_.devices[at(linked_.program(thread).device)];
  try {
    device.backend->use(device.gpu);
    ranks(thread);
  } catch (...) {
    run_.fail();
  }
}

void GpuExecutor::end() {
  warm_ = true;
  if (replays())
    captured_[at(run_.slot)] = true;
  else if (run_.replays)
    for (Captured& segment : segments_) segment = {};  // those of other GPUs, too
  if (ranks_) ranks_->end();
}

void GpuExecutor::recover() {
  if (ranks_) {  // captured segments of any step may refer to the communicators, so they end first
    for (GpuExecutor* const other : runtime_.with_ranks) other->forget_captures();
    ranks_->fail();
  }
  for (const StreamOf& of : streams_)
    if (of.stream) of.stream->drain();
  runtime_.gpus->drain_copies();
  for (const StrandIndex s : streams_.indices())
    if (streams_[s].stream) streams_[s].finished.set(run_.counted(s));
  forget_captures();
  if (ranks_) ranks_->end();
}

void GpuExecutor::forget_captures() {
  for (Captured& segment : segments_) segment = {};
  captured_ = {};
  warm_ = false;
}

}  // namespace belfry
