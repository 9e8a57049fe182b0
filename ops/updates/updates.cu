// The optimizers' updates, in one source like the ops of ops/pointwise.cu, and assignments of sums.
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/cuda/kernels/update_kernel.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry::cuda {
namespace {

template <class T>
struct Sgd {
  using Step = kernels::SgdStep<T>;
  using Options = SgdUpdateOptions;
  static constexpr std::size_t kVariables = 1, kGradient = 1;
  SgdUpdateOptions options;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0]); }
  static auto maker(const Node& node) {
    return [options = node.options<SgdUpdateOptions>()](const Operands& in, KernelQueue&) {
      return Sgd{options, in.at<T>(2), in.factor(3)};
    };
  }
};

template <class T>
struct Momentum {
  using Step = kernels::MomentumStep<T>;
  using Options = MomentumUpdateOptions;
  static constexpr std::size_t kVariables = 2, kGradient = 2;
  MomentumUpdateOptions options;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1]); }
  static auto maker(const Node& node) {
    return [options = node.options<MomentumUpdateOptions>()](const Operands& in, KernelQueue&) {
      return Momentum{options, in.at<T>(3), in.factor(4)};
    };
  }
};

template <class T>
struct RmsProp {
  using Step = kernels::RmsPropStep<T>;
  using Options = RmsPropUpdateOptions;
  static constexpr std::size_t kVariables = 3, kGradient = 3;
  RmsPropUpdateOptions options;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1], at[2]); }
  static auto maker(const Node& node) {
    return [options = node.options<RmsPropUpdateOptions>()](const Operands& in, KernelQueue&) {
      return RmsProp{options, in.at<T>(4), in.factor(5)};
    };
  }
};

template <class T>
struct Lion {
  using Step = kernels::LionStep<T>;
  using Options = LionUpdateOptions;
  static constexpr std::size_t kVariables = 2, kGradient = 2;
  LionUpdateOptions options;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1]); }
  static auto maker(const Node& node) {
    return [options = node.options<LionUpdateOptions>()](const Operands& in, KernelQueue&) {
      return Lion{options, in.at<T>(3), in.factor(4)};
    };
  }
};

template <class T>
struct Adagrad {
  using Step = kernels::AdagradStep<T>;
  using Options = AdagradUpdateOptions;
  static constexpr std::size_t kVariables = 2, kGradient = 2;
  AdagradUpdateOptions options;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1]); }
  static auto maker(const Node& node) {
    return [options = node.options<AdagradUpdateOptions>()](const Operands& in, KernelQueue&) {
      return Adagrad{options, in.at<T>(3), in.factor(4)};
    };
  }
};

template <class T>
struct Lars {
  using Step = kernels::LarsStep<T>;
  using Options = LarsUpdateOptions;
  static constexpr std::size_t kVariables = 2, kGradient = 4;
  LarsUpdateOptions options;
  const double* variable_norm;
  const double* gradient_norm;
  const T* rate;
  const float* factor;
  BELFRY_HD bool read(Step& step) const {
    step = Step::of(options, *variable_norm, *gradient_norm, *rate, factor_at<T>(factor));
    return step.factor != T(0);
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1]); }
  static auto maker(const Node& node) {
    return [options = node.options<LarsUpdateOptions>()](const Operands& in, KernelQueue&) {
      return Lars{options, in.at<double>(2), in.at<double>(3), in.at<T>(5), in.factor(6)};
    };
  }
};

template <class T>
struct Adam {
  using Step = kernels::AdamStep<T>;
  using Options = AdamUpdateOptions;
  static constexpr std::size_t kVariables = 3, kGradient = 4;
  AdamUpdateOptions options;
  const std::int64_t* count;
  const T* rate;
  const float* factor;
  Fault* fault;
  BELFRY_HD bool read(Step& step) const {
    const T by = factor_at<T>(factor);
    if (by == T(0)) return false;
    if (*count < 1) {
      note(fault, 0, *count);
      return false;
    }
    step = Step::at(options, *count, *rate, by);
    return true;
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1], at[2]); }
  static auto maker(const Node& node) {
    const auto refusal = std::make_shared<const Refusal>(
        [&node](std::int64_t, std::int64_t step) { refuse_adam_step(node, step); });
    return [refusal, options = node.options<AdamUpdateOptions>()](const Operands& in,
                                                                  KernelQueue& queue) {
      return Adam{options, in.at<std::int64_t>(3), in.at<T>(5), in.factor(6), queue.fault(refusal)};
    };
  }
};

template <class T>
struct AmsGrad {
  using Step = kernels::AmsGradStep<T>;
  using Options = AmsGradUpdateOptions;
  static constexpr std::size_t kVariables = 4, kGradient = 5;
  AmsGradUpdateOptions options;
  const std::int64_t* count;
  const T* rate;
  const float* factor;
  Fault* fault;
  BELFRY_HD bool read(Step& step) const {
    const T by = factor_at<T>(factor);
    if (by == T(0)) return false;
    if (*count < 1) {
      note(fault, 0, *count);
      return false;
    }
    step = Step::at(options, *count, *rate, by);
    return true;
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1], at[2], at[3]); }
  static auto maker(const Node& node) {
    const auto refusal = std::make_shared<const Refusal>(
        [&node](std::int64_t, std::int64_t step) { refuse_adam_step(node, step); });
    return [refusal, options = node.options<AmsGradUpdateOptions>()](const Operands& in,
                                                                     KernelQueue& queue) {
      return AmsGrad{options, in.at<std::int64_t>(4), in.at<T>(6), in.factor(7),
                     queue.fault(refusal)};
    };
  }
};

// Used only after a sum; elsewhere kernels copy.
template <class T>
struct Assign {
  using Step = Nothing;
  static constexpr std::size_t kVariables = 1;
  BELFRY_HD bool read(Step&) const { return true; }
  BELFRY_HD static void apply(const Step&, T sum, T* at) { at[0] = sum; }
  static auto maker(const Node&) {
    return [](const Operands&, KernelQueue&) { return Assign{}; };
  }
};

const GpuKernel kernels_of_ops[] = {
    {kSgdUpdate, update<Sgd>},   {kMomentumUpdate, update<Momentum>},
    {kAdamUpdate, update<Adam>}, {kRmsPropUpdate, update<RmsProp>},
    {kLionUpdate, update<Lion>}, {kAdagradUpdate, update<Adagrad>},
    {kLarsUpdate, update<Lars>}, {kAmsGradUpdate, update<AmsGrad>},
};

const FusedKernel fused_kernels[] = {
    {kSgdUpdate, fused<Sgd>},   {kMomentumUpdate, fused<Momentum>},
    {kAdamUpdate, fused<Adam>}, {kRmsPropUpdate, fused<RmsProp>},
    {kLionUpdate, fused<Lion>}, {kAdagradUpdate, fused<Adagrad>},
    {kLarsUpdate, fused<Lars>}, {kAmsGradUpdate, fused<AmsGrad>},
    {kAssign, fused<Assign>},
};

}  // namespace
}  // namespace belfry::cuda
