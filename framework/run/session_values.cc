// The calls of users other than runs: values of variables, placement, memory, the step count.
#include <algorithm>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/placement/explain.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {

Tensor Session::read(Variable variable) {
  const Tensor own = state_->read_own(variable);
  return variable.node().variable().part ? state_->parts.whole_of(variable, own) : own;
}

void Session::look_at(Variable variable,
                      const std::function<void(std::span<const std::byte>)>& look) {
  bool has_looked = false;
  if (!variable.node().variable().part)
    state_->with_memory(variable, [&](const MemoryBlock& memory) {
      has_looked = memory.on_host();
      if (has_looked) look({memory.data(), memory.bytes()});
    });
  if (has_looked) return;
  const Tensor value = read(variable);
  look({value.raw(), value.bytes()});
}

void Session::write(Variable variable, const Tensor& value) {
  require(value.shape() == variable.whole_shape() && value.dtype() == variable.dtype(),
          variable.node().describe(), ": is ", TensorType{variable.whole_shape(), variable.dtype()},
          ", but was written with ", name_of(value.dtype()), value.shape());
  const std::lock_guard lock(state_->mutex);
  state_->ensure(variable);
  const Node* const node = &variable.node();
  state_->unshare(*node);
  const std::lock_guard no_run(state_->runtime.run_lock);
  if (state_->runtime.is_behind({&node, 1})) state_->fetch_newer_parts();
  state_->parts.keep(*node);
  state_->variables.memory_of(*node).store(
      own_bytes(variable, {value.raw(), value.bytes()}).data());
  state_->runtime.suspects.erase(node);
}

bool Session::shares_storage(Variable variable) const {
  const std::lock_guard lock(state_->mutex);
  const VariableMemory::Entry* const kept = state_->variables.find(variable.node());
  return kept && kept->owner;
}

bool Session::intact() const {
  const std::lock_guard no_run(state_->runtime.run_lock);
  return state_->runtime.suspects.empty();
}

void Session::restore(std::span<const VariableBytes> values, std::uint64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->ensure_all(values);
  std::map<const Node*, std::span<const std::byte>> all;
  for (const auto& [variable, bytes] : values) {
    state_->ensure(variable);
    const TensorType whole{variable.whole_shape(), variable.dtype()};
    const auto wanted = static_cast<std::size_t>(whole.bytes());
    require(bytes.size() == wanted, variable.node().describe(), ": has ", wanted,
            " bytes, but would be restored from ", bytes.size());
    all.emplace(&variable.node(), own_bytes(variable, bytes));
  }
  state_->unshare_unequal(all);
  std::vector<std::vector<Tensor>> first;  // holds the bytes that `all` refers to
  std::unique_lock no_run(state_->runtime.run_lock);
  for (;;) {  // runs may fail while the lock is free
    std::vector<const Node*> lost;
    for (const Node* node : state_->runtime.suspects)
      if (!all.contains(node)) lost.push_back(node);
    if (lost.empty()) break;
    no_run.unlock();
    first.push_back(state_->first_values(lost));
    for (std::size_t i = 0; i < lost.size(); ++i)
      all.emplace(lost[i], std::span(first.back()[i].raw(), first.back()[i].bytes()));
    no_run.lock();
  }
  const auto is_restored = [&](const auto& left) { return all.contains(left.first); };
  if (auto& left_by = state_->runtime.elsewhere.left_by;
      left_by && std::ranges::all_of(left_by->gathered_first, is_restored))
    left_by = nullptr;
  state_->fetch_newer_parts();
  for (const auto& [node, bytes] : all) {
    state_->parts.keep(*node);
    state_->variables.memory_of(*node).store(bytes.data());
  }
  state_->runtime.suspects.clear();
  state_->runtime.step = step;
  state_->options.awaits_restore = false;
}

const Graph& Session::graph() const { return state_->graph; }

DeviceSpec Session::placement(Output output) {
  const std::lock_guard lock(state_->mutex);
  state_->require_own(output.node());
  return state_->devices[at(state_->placement()->device(output))]->spec;
}

Explanation Session::explain(const Output& output) {
  const std::lock_guard lock(state_->mutex);
  state_->require_own(output.node());
  return explain_placement(output, *state_->placement());
}

std::vector<DeviceSpec> Session::devices() const {
  std::vector<DeviceSpec> specs;
  for (const auto& device : state_->devices) specs.push_back(device->spec);
  return specs;
}

std::vector<DeviceUse> Session::device_use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->use.of_devices();
}

MemoryReport Session::memory_report() const {
  const std::lock_guard lock(state_->mutex);
  return state_->use.by_kind();
}

std::map<std::string, std::int64_t> Session::peak_bytes() const {
  std::map<std::string, std::int64_t> peaks;
  for (const DeviceUse& use : device_use()) peaks[use.device.str()] = use.peak_bytes;
  return peaks;
}

std::string DeviceUse::str() const {
  return cat(device, ": ", variables, variables == 1 ? " variable, " : " variables, ",
             variable_bytes, " bytes, planned peak ", peak_bytes, " bytes",
             declared ? " without the workspaces of libraries" : "");
}

int Session::threads() const { return state_->threads; }

std::uint64_t Session::step() const {
  const std::lock_guard no_run(state_->runtime.run_lock);
  return state_->runtime.step;
}

void Session::set_step(std::uint64_t step) {
  const std::lock_guard no_run(state_->runtime.run_lock);
  state_->runtime.step = step;
}

}  // namespace belfry
