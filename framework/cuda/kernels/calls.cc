#include "belfry/framework/cuda/kernels/calls.h"

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

template <class Numbers>
std::string bracketed(const Numbers& numbers) {
  return cat("[", join(numbers, ","), "]");
}

// Copies addresses. Tensor number `joined` has three parts, `part` bytes apart, and so gets three.
template <class Byte, class Address>
void put_addresses(std::span<const Address> from, std::size_t joined, std::int64_t part,
                   Address* to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    *to++ = from[i];
    for (int next = 1; i == joined && next < 3; ++next)
      *to++ = static_cast<Byte*>(from[i]) + next * part;
  }
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
             bracketed(std::array{batch, time, heads, head_dim}), joined ? " joined" : "");
}

void AttentionCall::take(std::span<const void* const> inputs, std::span<void* const> outputs) {
  constexpr std::size_t kNone = 8;  // more than there are tensors
  const std::int64_t part =
      attention.heads * attention.head_dim * static_cast<std::int64_t>(size_of(attention.dtype));
  const std::size_t first = attention.gradient ? 1 : 0;
  put_addresses<const char>(inputs, attention.joined ? first : kNone, part, in.data());
  put_addresses<char>(outputs, attention.joined && attention.gradient ? 0 : kNone, part,
                      out.data());
}

std::string Recurrence::str() const {
  return cat(has_c() ? "Lstm " : "Gru ", belfry::name_of(dtype),
             compute == Compute::kTf32 ? " tf32" : "", " x ",
             bracketed(std::array{batch, time, features}), " hidden ", hidden);
}

}  // namespace belfry::cuda
