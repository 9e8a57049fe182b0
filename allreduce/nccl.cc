#include "belfry/allreduce/nccl.h"

namespace belfry {
namespace {

// Can be named, not built.
class Unavailable final : public Strategy {
 public:
  Unavailable(std::string why, bool takes_chunks) : why_(std::move(why)), chunks_(takes_chunks) {}

  std::string refusal(int) const override { return why_; }
  std::unique_ptr<Strategy> in_chunks(int) const override {
    return chunks_ ? std::make_unique<Unavailable>(*this) : nullptr;
  }

 private:
  std::vector<std::vector<Output>> sum(const GradientTable&) const override {
    throw InvalidArgument(why_);
  }

  std::string why_;
  bool chunks_;
};

// Whether this machine has GPUs is not asked: programs on CPUs list strategies, too, and load no
// module for that.
std::unique_ptr<Strategy> make_nccl() {
  return std::make_unique<Unavailable>(
      "NCCL needs GPUs, and steps on GPUs do not call it yet; use collective", false);
}

const StrategyRegistration registered{"nccl", make_nccl};

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

GradientTable allreduce_nccl(const GradientTable& grads, Reduction reduction, At at) {
  return make_nccl()->reduce(grads, {.reduction = reduction}, at);
}

}  // namespace belfry
