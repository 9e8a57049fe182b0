#include "belfry/allreduce/nccl.h"

#include "belfry/framework/gpus.h"

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

class Nccl final : public Strategy {
 public:
  std::string refusal(int) const override {
    return cat("NCCL needs GPUs: ", why_no_gpu_devices(), "; use collective");
  }

 private:
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    throw InvalidArgument(refusal(grads.towers()));
  }
};

const StrategyRegistration registered{"nccl", [] { return std::make_unique<Nccl>(); }};

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
  return Nccl().reduce(grads, {.reduction = reduction}, at);
}

}  // namespace belfry
