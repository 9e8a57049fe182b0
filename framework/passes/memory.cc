#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Of a tensor, in bytes: a cache line, or what cuBLASLt asks of workspaces on GPUs.
std::int64_t align(std::int64_t bytes, const Device& device) {
  const std::int64_t alignment = device.on_gpu() ? 256 : 64;
  return (bytes + alignment - 1) / alignment * alignment;
}

// A buffer of an arena while it is being laid out.
struct Block {
  int buffer;
  std::int64_t bytes;
  int first;              // launch that writes it first
  std::vector<int> uses;  // all launches that touch it
};

class MemoryPlanner {
 public:
  MemoryPlanner(Plan& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    plan_.fetch_bytes.assign(context_.devices.size(), 0);
    assign_buffers();
    collect_uses();
    lay_out();
  }

 private:
  // In order of nodes: every value gets a buffer, its own or that of what it aliases or overwrites.
  void assign_buffers() {
    find_users();
    plan_.buffer_of.resize(plan_.nodes.size());
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      const PlanNode& node = plan_.nodes[n];
      auto& buffers = plan_.buffer_of[n];
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        const Value value{static_cast<int>(n), static_cast<int>(i)};
        const Value root = root_of(plan_, value);
        if (root != value) {
          buffers.push_back(plan_.buffer(root));
          continue;
        }
        // Equal results of a collective: one tensor serves a memory space.
        const int shared = node.op->collective ? equal_output(node, buffers) : -1;
        const int over = shared >= 0 ? shared : overwritten(value.node, i);
        buffers.push_back(over >= 0 ? over : make_buffer(node, i));
        values_in_[buffers.back()].push_back(value);
      }
    }
    for (Launch& launch : plan_.launches) {
      if (launch.workspace_bytes == 0) continue;
      const int device = plan_.lanes[at(launch.lane)].device;
      launch.workspace = static_cast<int>(plan_.buffers.size());
      plan_.buffers.push_back({Place::kArena, device, launch.workspace_bytes});
    }
  }

  // The buffer of an earlier output of a collective that equals the next and is in its memory
  // space, or -1.
  int equal_output(const PlanNode& node, const std::vector<int>& buffers) const {
    const auto space = [&](std::size_t output) {
      return context_.device(node.devices[output]).memory_space;
    };
    const std::size_t equal = at(node.participants());
    for (std::size_t earlier = buffers.size() / equal * equal; earlier < buffers.size(); ++earlier)
      if (space(earlier) == space(buffers.size())) return buffers[earlier];
    return -1;
  }

  int make_buffer(const PlanNode& node, std::size_t i) {
    BufferRecord record{Place::kArena, node.devices[i], node.types[i].bytes()};
    record.node = node.node;
    if (node.fetch >= 0) {
      record.place = Place::kFetch;
      record.index = node.fetch;
      plan_.fetch_bytes[at(record.device)] += record.bytes;
    } else if (node.feed >= 0) {
      record.place = Place::kFeed;
      record.index = node.feed;
    } else if (node.op == &kConst) {
      record.place = Place::kFixed;
    } else if (node.op->storage) {
      record.place = Place::kState;
    }
    plan_.buffers.push_back(record);
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  // users_[root]: the launching nodes that use a value, aliases followed.
  void find_users() {
    launch_of_.assign(plan_.nodes.size(), -1);
    for (std::size_t l = 0; l < plan_.launches.size(); ++l)
      launch_of_[at(plan_.launches[l].node)] = static_cast<int>(l);
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (launch_of_[n] >= 0)
        for (const Value& input : plan_.nodes[n].inputs)
          users_[root_of(plan_, input)].push_back(launch_of_[n]);
  }

  // The buffer that output i may be written over, or -1: an input in the same arena, of the same
  // size, that this launch is the last to use.
  int overwritten(int n, std::size_t i) {
    const PlanNode& node = plan_.node(n);
    const int launch = launch_of_[at(n)];
    if (node.op->in_place == InPlace::kNo || launch < 0 || node.fetch >= 0) return -1;
    const bool pairwise = node.op->in_place == InPlace::kPairwise;
    if (!pairwise && i > 0) return -1;
    const std::size_t from = pairwise ? i : 0;
    const std::size_t to = node.op->in_place == InPlace::kAny ? node.inputs.size() : from + 1;
    for (std::size_t j = from; j < to && j < node.inputs.size(); ++j) {
      const Value root = root_of(plan_, node.inputs[j]);
      const int buffer = plan_.buffer(root);
      const BufferRecord& record = plan_.buffers[at(buffer)];
      if (record.place != Place::kArena || record.device != node.devices[i] ||
          record.bytes != node.types[i].bytes())
        continue;
      if (last_user(buffer, launch) && fed_once(node, buffer)) return buffer;
    }
    return -1;
  }

  // No other launch uses what is in the buffer, at the same time or later.
  bool last_user(int buffer, int launch) const {
    for (const Value value : values_in_.at(buffer)) {
      const auto users = users_.find(value);
      if (users == users_.end()) continue;
      for (const int user : users->second)
        if (user != launch && !happens_before(user, launch)) return false;
    }
    return true;
  }

  // A value used twice by one launch is read at other places than it is written.
  bool fed_once(const PlanNode& node, int buffer) const {
    return std::ranges::count_if(node.inputs, [&](const Value& input) {
             return plan_.buffer(root_of(plan_, input)) == buffer;
           }) == 1;
  }

  bool happens_before(int a, int b) const {
    const Launch& first = plan_.launches[at(a)];
    return plan_.clocks[at(b)].size() > at(first.lane) &&
           plan_.clocks[at(b)][at(first.lane)] > first.position;
  }

  void collect_uses() {
    uses_.resize(plan_.buffers.size());
    for (std::size_t l = 0; l < plan_.launches.size(); ++l) {
      const Launch& launch = plan_.launches[l];
      const PlanNode& node = plan_.node(launch.node);
      const auto touch = [&](int buffer) {
        auto& uses = uses_[at(buffer)];
        if (uses.empty() || uses.back() != static_cast<int>(l)) uses.push_back(static_cast<int>(l));
      };
      for (const Value& input : node.inputs) touch(plan_.buffer(root_of(plan_, input)));
      for (const int buffer : plan_.buffer_of[at(launch.node)]) touch(buffer);
      if (launch.workspace >= 0) touch(launch.workspace);
    }
  }

  // Largest first, each at the lowest offset that no conflicting block overlaps.
  void lay_out() {
    plan_.arena_bytes.assign(context_.devices.size(), 0);
    std::vector<std::vector<Block>> by_device(context_.devices.size());
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const BufferRecord& record = plan_.buffers[b];
      if (record.place == Place::kArena && !uses_[b].empty())
        by_device[at(record.device)].push_back(
            {static_cast<int>(b), align(record.bytes, device(record)), uses_[b].front(), uses_[b]});
    }
    for (std::size_t d = 0; d < by_device.size(); ++d) {
      std::vector<Block>& blocks = by_device[d];
      std::ranges::stable_sort(blocks, std::greater(), &Block::bytes);
      for (std::size_t i = 0; i < blocks.size(); ++i)
        plan_.arena_bytes[d] = std::max(plan_.arena_bytes[d], put(blocks, i));
    }
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b)
      if (!uses_[b].empty()) append_constant(plan_.buffers[b]);
    for (std::size_t d = 0; d < by_device.size(); ++d) append_feeds(static_cast<int>(d));
  }

  // What outlives runs lies behind what does not: constants of GPUs.
  void append_constant(BufferRecord& record) {
    if (record.place != Place::kFixed || !device(record).on_gpu()) return;
    std::int64_t& end = plan_.arena_bytes[at(record.device)];
    record.offset = end;
    end += align(record.bytes, device(record));
  }

  // So do the slots for what a GPU is fed with; those of the host lie behind the first device's.
  void append_feeds(int d) {
    const Device& fed = context_.device(d);
    if (!fed.on_gpu()) return;
    std::int64_t& end = plan_.arena_bytes[at(d)];
    FeedSlots slots{
        .device = d, .gpu = fed.gpu, .bytes = 0, .offset = end, .on_host = plan_.arena_bytes[0]};
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      BufferRecord& record = plan_.buffers[b];
      if (record.place != Place::kFeed || record.device != d || uses_[b].empty()) continue;
      record.offset = end + slots.bytes;
      slots.bytes += align(record.bytes, fed);
      slots.buffers.push_back(static_cast<int>(b));
    }
    if (slots.buffers.empty()) return;
    end += FeedSlots::kCount * slots.bytes;
    plan_.arena_bytes[0] += FeedSlots::kCount * slots.bytes;
    plan_.feed_slots.push_back(std::move(slots));
  }

  const Device& device(const BufferRecord& record) const { return context_.device(record.device); }

  // Places block i beside those before it; returns where it ends.
  std::int64_t put(const std::vector<Block>& blocks, std::size_t i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (std::size_t j = 0; j < i; ++j) {
      if (!conflict(blocks[i], blocks[j])) continue;
      const std::int64_t begin = plan_.buffers[at(blocks[j].buffer)].offset;
      taken.emplace_back(begin, begin + blocks[j].bytes);
    }
    std::ranges::sort(taken);
    std::int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - offset >= blocks[i].bytes) break;
      offset = std::max(offset, end);
    }
    plan_.buffers[at(blocks[i].buffer)].offset = offset;
    return offset + blocks[i].bytes;
  }

  // Unless every use of one happens before the first write of the other.
  bool conflict(const Block& a, const Block& b) const {
    return !(all_before(a.uses, b.first) || all_before(b.uses, a.first));
  }

  bool all_before(const std::vector<int>& uses, int launch) const {
    return std::ranges::all_of(uses, [&](int use) { return happens_before(use, launch); });
  }

  Plan& plan_;
  const PlanContext& context_;
  std::vector<int> launch_of_;
  std::map<Value, std::vector<int>> users_;
  std::map<int, std::vector<Value>> values_in_;  // by buffer
  std::vector<std::vector<int>> uses_;
};

}  // namespace

void plan_memory(Plan& plan, const PlanContext& context) { MemoryPlanner(plan, context).run(); }

}  // namespace belfry
