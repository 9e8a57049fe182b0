#include "belfry/allreduce/strategies/collective.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpus.h"

namespace belfry {
namespace {

// Each physical GPU sums the gradients of its towers. NCCL sums these results over the GPUs of all
// processes, in no canonical order.
class Nccl final : public Strategy {
 public:
  explicit Nccl(bool in_one_node = false) : in_one_node_(in_one_node) {}

  // Programs on CPUs also list strategies. They need not load the GPU module for that.
  std::string refusal(const std::vector<DeviceSpec>& devices) const override {
    for (std::size_t t = 0; t < devices.size(); ++t)
      if (devices[t].type && !devices[t].is_gpu())
        return cat("NCCL needs GPUs, but tower ", t, " is on ", devices[t].short_str(),
                   "; use collective");
    if (devices.empty() || !devices[0].type || gpus().count() == 0) return "";  // only a plan
    const NcclInfo here = gpus().backend()->nccl();
    return here.version > 0 ? "" : cat("there is no NCCL: ", here.why_not, "; use collective");
  }
  std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const override {
    return refusal(devices);
  }
  std::unique_ptr<Strategy> in_one_node() const override { return std::make_unique<Nccl>(true); }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    return by_collectives(grads, reduction == Reduction::kMean, in_one_node_,
                          nccl_all_reduce_bucket);
  }

  bool in_one_node_;
};

const StrategyRegistration nccl_strategy{"nccl", [] { return std::make_unique<Nccl>(); }};

// A strategy whose name is known but that cannot be built.
class Unavailable final : public Strategy {
 public:
  Unavailable(std::string why, bool takes_chunks) : why_(std::move(why)), chunks_(takes_chunks) {}

  std::string refusal(const std::vector<DeviceSpec>&) const override { return why_; }
  std::unique_ptr<Strategy> in_chunks(int) const override {
    return chunks_ ? std::make_unique<Unavailable>(*this) : nullptr;
  }

 private:
  OutputRows sum(const GradientTable&) const override { throw InvalidArgument(why_); }

  std::string why_;
  bool chunks_;
};

struct SeveralProcesses {
  SeveralProcesses(const std::string& name, bool takes_chunks)
      : registration(
            name,
            [name, takes_chunks] {
              return std::make_unique<Unavailable>(
                  cat(name, " needs several processes, and there is one; use ",
                      "a strategy without '/'"),
                  takes_chunks);
            },
            StrategyName::kAlias) {}
  StrategyRegistration registration;
};

const SeveralProcesses nccl_xring("nccl/xring", true), nccl_rechd("nccl/rechd", false),
    nccl_pscpu("nccl/pscpu", true), pscpu_pscpu("pscpu/pscpu", true);

}  // namespace

}  // namespace belfry
