#include "belfry/framework/graph/scope_stack.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::string kind_of(const ScopeFrame& frame) {
  constexpr const char* kKinds[] = {"device",     "name", "variable", "control dependencies",
                                    "colocation", "site", "replica",  "eager",
                                    "autocast"};
  static_assert(std::size(kKinds) == std::variant_size_v<ScopeFrame>);
  return kKinds[frame.index()];
}

// Describes a scope so that it differs from others of its kind.
std::string mark_of(const ScopeStack::Entry& entry) {
  const std::string opened = cat("opened at ", entry.site, ")");
  if (const auto* device = std::get_if<DeviceFrame>(&entry.frame))
    return cat(" (", *device->what, ", ", opened);
  if (const auto* names = std::get_if<NameFrame>(&entry.frame))
    return cat(" ('", names->path, "', ", opened);
  if (const auto* variables = std::get_if<VariableFrame>(&entry.frame))
    return cat(" ('", variables->path, "', ", opened);
  return cat(" (", opened);
}

}  // namespace

void ScopeStack::enter(const detail::Guard* owner, ScopeFrame frame, SourceLine site) {
  frames_.push_back({owner, std::move(frame), site_or(site)});
}

void ScopeStack::leave(const detail::Guard* owner) noexcept {
  if (!frames_.empty() && frames_.back().owner == owner) return frames_.pop_back();
  const auto own = std::ranges::find(frames_, owner, &Entry::owner);
  if (own == frames_.end()) return;
  try {
    fault_ = cat("Exiting ", kind_of(own->frame), " scope without proper scope nesting.",
                 mark_of(*own), " Guards must end in reverse order of their beginning.");
    log_error(fault_);
  } catch (...) {  // out of memory: a destructor must not throw
  }
  frames_.erase(own);
}

std::string ScopeStack::take_fault() { return std::exchange(fault_, {}); }

std::string_view ScopeStack::names() const {
  const auto* frame = innermost<NameFrame>();
  return frame ? std::string_view(frame->path) : std::string_view();
}

std::string_view ScopeStack::variable_path() const {
  const auto* frame = innermost<VariableFrame>();
  return frame ? std::string_view(frame->path) : std::string_view();
}

VariableScopeState ScopeStack::variables() const {
  VariableScopeState state{.path = std::string(variable_path())};
  for (auto entry = frames_.rbegin(); entry != frames_.rend(); ++entry) {
    const auto* frame = std::get_if<VariableFrame>(&entry->frame);
    if (!frame) continue;
    const VariableScopeOptions& own = frame->options;
    if (state.reuse == VariableReuse::kInherit) state.reuse = own.reuse;
    if (!state.initializer) state.initializer = own.initializer;
    if (!state.dtype) state.dtype = own.dtype;
    if (state.caching_device.empty()) state.caching_device = own.caching_device;
    if (own.getter) state.getters.push_back(own.getter);
  }
  return state;
}

std::vector<Node*> ScopeStack::controls() const {
  std::vector<Node*> all;
  for (auto entry = frames_.rbegin(); entry != frames_.rend(); ++entry) {
    const auto* frame = std::get_if<ControlFrame>(&entry->frame);
    if (!frame) continue;
    all.insert(all.end(), frame->nodes.begin(), frame->nodes.end());
    if (frame->clears) break;
  }
  return all;
}

SourceLine ScopeStack::site_or(SourceLine site) const {
  for (const Entry& entry : frames_)
    if (const auto* frame = std::get_if<SiteFrame>(&entry.frame)) return frame->site;
  return site.known() ? site : SourceLine{newest.file, newest.line, false};
}

std::string_view ScopeStack::replica_prefix() const {
  const auto* frame = innermost<ReplicaFrame>();
  return frame ? std::string_view(frame->prefix) : std::string_view();
}

int ScopeStack::replica() const {
  const auto* frame = innermost<ReplicaFrame>();
  return frame ? frame->index : 0;
}

int ScopeStack::call() const {
  const auto* frame = innermost<ReplicaFrame>();
  return frame ? frame->call : 0;
}

}  // namespace belfry
