// shuffle: each device sums one fragment of every tensor, then all gather the fragments.
#include <algorithm>
#include <functional>

#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// Chooses the devices that sum fragments.
using Summers = std::function<std::vector<DeviceSpec>(const GradientTable&)>;

std::vector<DeviceSpec> on_towers(const GradientTable& grads) { return grads.devices(); }

std::vector<DeviceSpec> on_cpus(const GradientTable& grads) {
  int known = 1;
  for (const DeviceSpec& device : grads.devices())
    if (device.type == "CPU" && device.index) known = std::max(known, *device.index + 1);
  std::vector<DeviceSpec> cpus;
  for (int i = 0; i < std::min(known, grads.towers()); ++i) cpus.emplace_back(cat("/cpu:", i));
  return cpus;
}

// Each tensor is cut into as many fragments of nearly equal size as there are devices. Device f
// sums fragment f over all towers by add_n, and divides it for a mean. Every tower joins the sums
// on its own device. In specs, `shuffle#n` deals n fragments to each device. `psgpu` is shuffle,
// and `pscpu` is shuffle over the CPUs cpu:0, cpu:1, ... There are as many of these as towers, but
// none beyond the last CPU that has a tower. If no CPU has a tower, cpu:0 sums alone.
class Shuffle final : public Strategy {
 public:
  explicit Shuffle(Summers summers, int chunks = 1)
      : summers_(std::move(summers)), chunks_(chunks) {}

  bool canonical(int) const override { return true; }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return std::make_unique<Shuffle>(summers_, chunks);
  }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    NameScope names(grads.graph(), "AllReduceShuffle");
    const std::vector<DeviceSpec> devices = summers_(grads);
    return by_variable(grads, [&](int v) { return add_variable(grads, v, devices, reduction); });
  }

  std::vector<Output> add_variable(const GradientTable& grads, int v,
                                   const std::vector<DeviceSpec>& devices,
                                   Reduction reduction) const {
    const std::int64_t elements = known_elements(grads, v, "shuffle all-reduce");
    if (elements == 0) return grads.values(v);  // nothing to add
    const std::vector<std::int64_t> sizes = even_sizes(elements, chunks_ * std::ssize(devices));
    std::vector<std::vector<Output>> fragments(sizes.size());  // [f][t]
    for (int t = 0; t < grads.towers(); ++t) {
      DeviceScope on(grads.graph(), grads.device(t));
      const std::vector<Output> own = cut(flat_row(grads.at(t, v).value), sizes);
      for (std::size_t f = 0; f < sizes.size(); ++f) fragments[f].push_back(own[f]);
    }
    std::vector<Output> totals, results;
    for (std::size_t f = 0; f < sizes.size(); ++f) {
      DeviceScope on(grads.graph(), devices[f % devices.size()]);
      const Output total = add_n(fragments[f]);
      totals.push_back(reduction == Reduction::kMean ? total / grads.towers() : total);
    }
    for (int t = 0; t < grads.towers(); ++t) {
      DeviceScope on(grads.graph(), grads.device(t));
      results.push_back(reshape(join_flat(totals), grads.at(0, v).value.shape()));
    }
    return results;
  }

  Summers summers_;
  int chunks_;
};

const StrategyRegistration shuffle{"shuffle", [] { return std::make_unique<Shuffle>(on_towers); }};
const StrategyAlias psgpu{"psgpu", "shuffle"};
const StrategyRegistration pscpu{"pscpu", [] { return std::make_unique<Shuffle>(on_cpus); },
                                 StrategyName::kAlias};

}  // namespace

}  // namespace belfry
