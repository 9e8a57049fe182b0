#include "belfry/allreduce/mixed.h"

#include <algorithm>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

class Mixed final : public Strategy {
 public:
  Mixed(std::vector<SizeRange> ranges, std::string spec)
      : ranges_(std::move(ranges)), spec_(std::move(spec)) {}

  std::string refusal(const std::vector<DeviceSpec>& devices) const override {
    return first_refusal([&](const Strategy& part) { return part.refusal(devices); });
  }
  std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const override {
    return first_refusal([&](const Strategy& part) { return part.refusal_of_processes(devices); });
  }
  bool canonical(int towers) const override {
    return std::ranges::all_of(
        ranges_, [&](const SizeRange& range) { return range.strategy->canonical(towers); });
  }
  std::unique_ptr<Strategy> in_one_node() const override {
    std::vector<SizeRange> ranges = ranges_;
    bool any = false;
    for (SizeRange& range : ranges) {
      std::unique_ptr<Strategy> in_one_node = range.strategy->in_one_node();
      any = any || in_one_node;
      if (in_one_node) range.strategy = std::move(in_one_node);
    }
    return any ? std::make_unique<Mixed>(std::move(ranges), spec_) : nullptr;
  }

 private:
  template <class F>
  std::string first_refusal(const F& refusal_of) const {
    for (const SizeRange& range : ranges_)
      if (const std::string why = refusal_of(*range.strategy); !why.empty()) return why;
    return "";
  }

  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    std::vector<std::vector<int>> members(ranges_.size());
    for (int v = 0; v < grads.variables(); ++v) members[range_of(grads, v)].push_back(v);
    return by_group(grads, members, [&](std::size_t r, const GradientTable& some) {
      return ranges_[r].strategy->combine(some, reduction);
    });
  }

  std::size_t range_of(const GradientTable& grads, int v) const {
    const std::int64_t bytes = known_elements(grads, v, cat("allreduce=", spec_)) *
                               static_cast<std::int64_t>(size_of(grads.at(0, v).value.dtype()));
    std::size_t r = 0;
    while (ranges_[r].limit != kNoLimit && bytes > ranges_[r].limit) ++r;
    return r;
  }

  std::vector<SizeRange> ranges_;
  std::string spec_;
};

}  // namespace

std::unique_ptr<Strategy> mixed(std::vector<SizeRange> ranges, std::string spec) {
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    require(ranges[r].strategy != nullptr, "'", spec, "': range ", r, " has no strategy");
    require((ranges[r].limit == kNoLimit) == (r + 1 == ranges.size()), "'", spec,
            "': the last range, and no other, takes tensors of any size");
  }
  require(!ranges.empty(), "'", spec, "' has no ranges");
  return std::make_unique<Mixed>(std::move(ranges), std::move(spec));
}

}  // namespace belfry
