#include "belfry/ops/linear_algebra/fft.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/on_host.h"
#include "belfry/ops/linear_algebra/fourier_ops.h"
#include "belfry/ops/shapes/move_axes.h"
#include "belfry/ops/shapes/pad.h"
#include "belfry/ops/shapes/rearrange.h"
#include "belfry/ops/shapes/stack.h"

namespace belfry {
namespace {

FourierScale scale_of(FftNorm norm, bool inverse) {
  if (norm == FftNorm::kOrtho) return FourierScale::kRoot;
  return (norm == FftNorm::kBackward) == inverse ? FourierScale::kAll : FourierScale::kNone;
}

// The tensor of a call, with the axis where its op has it: last, or before the two parts of complex
// numbers.
class FftInput {
 public:
  FftInput(const char* what, Output given, bool complex, const FftOptions& options, At at)
      : x(given) {
    const std::size_t rank = x.shape().rank() - (complex ? 1 : 0);
    require(x.shape().rank() > 0 && (!complex || x.shape().back() == 2), what, " (", at.site,
            "): ", x.type(),
            complex ? " is not complex; the last axis has to have size 2" : " has no axis");
    require(options.axis < static_cast<int>(rank) && options.axis >= -static_cast<int>(rank), what,
            " (", at.site, "): ", x.type(), " has no axis ", options.axis,
            complex ? " besides that of the parts of numbers" : "");
    axis_ = static_cast<int>(from_end(options.axis, rank));
    last_ = static_cast<int>(rank) - 1;
    x = moveaxis(x, axis_, last_);
    require(size() > 0, what, " (", at.site, "): axis ", options.axis, " of ", given.type(),
            " must have a known size, and not 0");
    require(options.n >= 0, what, " (", at.site, "): the size n is ", options.n,
            ", but must be positive, or 0 for that of the axis");
  }

  Output x;

  std::int64_t size() const { return x.shape()[static_cast<std::size_t>(last_)]; }

  // Cuts the axis, or appends zeros.
  void resize(std::int64_t n) {
    if (n < size()) {
      std::vector<AxisSlice> slices(static_cast<std::size_t>(last_) + 1);
      slices.back().end = n;
      x = strided_slice(x, slices);
    } else if (n > size()) {
      std::vector<AxisPads> pads(x.shape().rank());
      pads[static_cast<std::size_t>(last_)].after = n - size();
      x = pad(x, pads);
    }
  }

  // Adds a node, whose result has the axis where the call wants it.
  Output transformed(const Op& op, NodeOptions options, At at) {
    if (last_ == 0) x = expand_dims(x, 0);
    Output y = add_on_host(op, {x}, at, std::move(options)).output();
    if (last_ == 0) y = squeeze(y, {0});
    return moveaxis(y, last_, axis_);
  }

 private:
  int axis_, last_;
};

Output complex_fft(const char* what, bool inverse, Output x, const FftOptions& options, At at) {
  const SiteScope site(x.graph(), at.site);
  FftInput in(what, x, true, options, at);
  if (options.n > 0) in.resize(options.n);
  return in.transformed(
      kFft,
      NodeOptions(FourierOptions{.inverse = inverse, .scale = scale_of(options.norm, inverse)}),
      at);
}

}  // namespace

Output fft(Output x, FftOptions options, At at) {
  return complex_fft("fft", false, x, options, at);
}
Output ifft(Output x, FftOptions options, At at) {
  return complex_fft("ifft", true, x, options, at);
}

Output rfft(Output x, FftOptions options, At at) {
  const SiteScope site(x.graph(), at.site);
  FftInput in("rfft", x, false, options, at);
  if (options.n > 0) in.resize(options.n);
  return in.transformed(
      kRealFft,
      NodeOptions(RealFourierOptions{.n = in.size(), .scale = scale_of(options.norm, false)}), at);
}

Output irfft(Output x, FftOptions options, At at) {
  const SiteScope site(x.graph(), at.site);
  FftInput in("irfft", x, true, options, at);
  const std::int64_t n = options.n > 0 ? options.n : 2 * (in.size() - 1);
  require(n > 0, "irfft (", at.site, "): one frequency does not say how many numbers there are; ",
          "state n");
  in.resize(n / 2 + 1);
  return in.transformed(kInverseRealFft,
                        NodeOptions(RealFourierOptions{
                            .n = n, .scale = scale_of(options.norm, true), .both_signs = true}),
                        at);
}

Output complex_mul(Output x, Output y, At at) {
  for (const Output& factor : {x, y})
    require(factor.shape().rank() > 0 && factor.shape().back() == 2, "complex_mul (", at.site,
            "): ", factor.type(), " is not complex; the last axis has to have size 2");
  const SiteScope site(x.graph(), at.site);
  const std::vector<Output> a = unstack(x, -1), b = unstack(y, -1);
  return stack({sub(mul(a[0], b[0]), mul(a[1], b[1])), add(mul(a[0], b[1]), mul(a[1], b[0]))}, -1,
               at);
}

}  // namespace belfry
