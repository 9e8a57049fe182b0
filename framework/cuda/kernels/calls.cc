#include "belfry/framework/cuda/kernels/calls.h"

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

template <class Numbers>
std::string bracketed(const Numbers& numbers) {
  return cat("[", join(numbers, ","), "]");
}

std::string_view name_of(Convolution::Kind kind) {
  switch (kind) {
    case Convolution::Kind::kForward: return "Conv2d";
    case Convolution::Kind::kGradInput: return "Conv2dGradInput";
    case Convolution::Kind::kGradFilter: return "Conv2dGradFilter";
  }
  return "";
}

}  // namespace

std::string Convolution::str() const {
  return cat(name_of(kind), " ", belfry::name_of(dtype), compute == Compute::kTf32 ? " tf32" : "",
             " x ", bracketed(x), " filter ", bracketed(filter), " y ", bracketed(y), " padding ",
             bracketed(padding), " stride ", bracketed(stride),
             dilation == std::array{1, 1} ? "" : cat(" dilation ", bracketed(dilation)),
             groups == 1 ? "" : cat(" groups ", groups));
}

std::string Pooling::str() const {
  return cat(gradient ? "AvgPoolGrad " : "AvgPool ", belfry::name_of(dtype), " x ", bracketed(x),
             " y ", bracketed(y), " window ", bracketed(window), " padding ", bracketed(padding),
             " stride ", bracketed(stride));
}

std::string Attention::str() const {
  return cat(gradient ? "CausalAttentionGrad " : "CausalAttention ", belfry::name_of(dtype), " ",
             bracketed(std::array{batch, time, heads, head_dim}));
}

std::string Recurrence::str() const {
  return cat(has_c() ? "Lstm " : "Gru ", belfry::name_of(dtype),
             compute == Compute::kTf32 ? " tf32" : "", " x ",
             bracketed(std::array{batch, time, features}), " hidden ", hidden);
}

}  // namespace belfry::cuda
