#include "belfry/ops/linear_algebra/fourier_ops.h"

#include <cmath>
#include <memory>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/on_host.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/linear_algebra/real_fourier_impl.h"

namespace belfry {
namespace {

constexpr char kByKissFft[] = "kissfft computes it, on hosts";

// Requires numbers [..., n], or complex ones [..., n, 2], with a leading dimension at least.
// Returns n.
std::int64_t checked_numbers(const ShapeContext& c, bool complex) {
  c.require(c.dtype() == DType::kF32 || c.dtype() == DType::kF64, "takes f32 and f64, not ",
            name_of(c.dtype()), "; use cast");
  const Shape& x = c.input(0);
  const std::size_t axes = complex ? 2 : 1;
  c.require(x.rank() > axes && (!complex || x.back() == 2), "needs ",
            complex ? "complex numbers [..., n, 2]" : "rows [..., n]", ", not ", x);
  const std::int64_t n = x[x.rank() - axes];
  c.require(n > 0, "the axis of ", x, " must have a known size, and not 0");
  return n;
}

// The type of output 0: that of the input with other sizes from dimension `axis` on.
OutputTypes other_line(const ShapeContext& c, std::size_t axis, std::vector<std::int64_t> sizes) {
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < axis; ++i) dims.push_back(c.input(0)[i]);
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  return {Shape(dims)};
}

OutputTypes fft_shape(const ShapeContext& c) {
  checked_numbers(c, true);
  return {c.type(0)};
}

OutputTypes real_fft_shape(const ShapeContext& c) {
  const std::int64_t count = checked_numbers(c, false), n = c.options<RealFourierOptions>().n;
  c.require(count == n, "transforms ", n, " numbers, not those of ", c.input(0));
  return other_line(c, c.input(0).rank() - 1, {n / 2 + 1, 2});
}

OutputTypes inverse_real_fft_shape(const ShapeContext& c) {
  const std::int64_t count = checked_numbers(c, true), n = c.options<RealFourierOptions>().n;
  c.require(count == n / 2 + 1, "transforms ", n / 2 + 1, " frequencies, not those of ",
            c.input(0));
  return other_line(c, c.input(0).rank() - 2, {n});
}

std::vector<Output> fft_gradient(const Node& node, std::span<const Output> grads) {
  FourierOptions options = node.options<FourierOptions>();
  options.inverse = !options.inverse;
  return {add_on_host(kFft, {grads[0]}, {}, NodeOptions(options)).output()};
}

std::vector<Output> real_fft_gradient(const Node& node, std::span<const Output> grads) {
  const Op& other = &node.op() == &kRealFft ? kInverseRealFft : kRealFft;
  const RealFourierOptions& options = node.options<RealFourierOptions>();
  return {add_on_host(other, {grads[0]}, {}, NodeOptions(options)).output()};
}

double factor_of(FourierScale scale, std::int64_t n) {
  const auto count = static_cast<double>(n);
  switch (scale) {
    case FourierScale::kNone: return 1;
    case FourierScale::kRoot: return 1 / std::sqrt(count);
    default: return 1 / count;
  }
}

template <class T>
ComplexNumber complex_at(const T* x, std::int64_t i) {
  return {static_cast<double>(x[2 * i]), static_cast<double>(x[2 * i + 1])};
}
template <class T>
void put_complex(ComplexNumber value, T* y, std::int64_t i) {
  y[2 * i] = static_cast<T>(value.real());
  y[2 * i + 1] = static_cast<T>(value.imag());
}

// What the ops do to a line. All have the numbers of elements of a line of input and output, and
// the complex numbers that run() needs as `work`.
template <class Transform>
struct ComplexLine {
  explicit ComplexLine(const KernelPlan& plan)
      : n(plan.output().shape[plan.output().shape.rank() - 2]),
        factor(factor_of(plan.options<FourierOptions>().scale, n)),
        transform(n, plan.options<FourierOptions>().inverse) {}

  std::int64_t inputs() const { return 2 * n; }
  std::int64_t outputs() const { return 2 * n; }
  std::int64_t work() const { return 2 * n + transform.work(); }

  template <class T>
  void run(const T* x, T* y, ComplexNumber* work) const {
    ComplexNumber* const result = work + n;
    for (std::int64_t i = 0; i < n; ++i) work[i] = complex_at(x, i);
    transform.run(work, result, result + n);
    for (std::int64_t i = 0; i < n; ++i) put_complex(factor * result[i], y, i);
  }

  std::int64_t n;
  double factor;
  Transform transform;
};

template <class Transform, bool inverse>
struct RealLine {
  explicit RealLine(const KernelPlan& plan)
      : options(plan.options<RealFourierOptions>()),
        factor(factor_of(options.scale, options.n)),
        transform(options.n, inverse) {}

  std::int64_t inputs() const { return inverse ? frequencies() : options.n; }
  std::int64_t outputs() const { return inverse ? options.n : frequencies(); }
  std::int64_t work() const { return transform.work(); }

  template <class T>
  void run(const T* x, T* y, ComplexNumber* work) const {
    if constexpr (inverse)
      transform.run_back(
          [&](std::int64_t k) {
            const ComplexNumber value = complex_at(x, k);
            if (!has_other_sign(k)) return ComplexNumber(value.real());
            return options.both_signs ? value : 0.5 * value;
          },
          [&](std::int64_t i, double value) { y[i] = static_cast<T>(factor * value); }, work);
    else
      transform.run([&](std::int64_t i) { return static_cast<double>(x[i]); },
                    [&](std::int64_t k, ComplexNumber value) {
                      const bool twice = options.both_signs && has_other_sign(k);
                      put_complex((twice ? 2 * factor : factor) * value, y, k);
                    },
                    work);
  }

 private:
  std::int64_t frequencies() const { return 2 * (options.n / 2 + 1); }  // elements
  bool has_other_sign(std::int64_t k) const { return k != 0 && 2 * k != options.n; }

  RealFourierOptions options;
  double factor;
  RealTransform<Transform> transform;
};

template <class Line>
KernelRun fourier_kernel(KernelPlan& plan) {
  const auto line = std::make_shared<const Line>(plan);
  plan.workspace(line->work() * static_cast<std::int64_t>(sizeof(ComplexNumber)));
  const Shape& y = plan.output().shape;
  const std::int64_t per_row = y.product(1, y.rank()) / line->outputs();
  return typed_kernel(plan, [line, per_row]<class T>(T, const KernelPointers& p) {
    auto* const work = reinterpret_cast<ComplexNumber*>(p.workspace());
    for (std::int64_t i = p.begin() * per_row; i < p.end() * per_row; ++i)
      line->run(p.input<T>(0) + i * line->inputs(), p.output<T>() + i * line->outputs(), work);
  });
}

}  // namespace

const Op kFft {
  .name = "Fft", .inputs = 1, .shape = fft_shape, .gradient = fft_gradient,
  .split = WorkSplit::kRows, .heavy = true, .shards = by_rows<1>,
#if BELFRY_KISSFFT
  .cpu = fourier_kernel<ComplexLine<KissTransform>>,
#endif
  .reference = fourier_kernel<ComplexLine<PlainTransform>>, .cpu_only = kByKissFft,
  .autocast = Autocast::kFull
};

const Op kRealFft {
  .name = "RealFft", .inputs = 1, .shape = real_fft_shape, .gradient = real_fft_gradient,
  .split = WorkSplit::kRows, .heavy = true, .shards = by_rows<1>,
#if BELFRY_KISSFFT
  .cpu = fourier_kernel<RealLine<KissTransform, false>>,
#endif
  .reference = fourier_kernel<RealLine<PlainTransform, false>>, .cpu_only = kByKissFft,
  .autocast = Autocast::kFull
};

const Op kInverseRealFft {
  .name = "InverseRealFft", .inputs = 1, .shape = inverse_real_fft_shape,
  .gradient = real_fft_gradient, .split = WorkSplit::kRows, .heavy = true, .shards = by_rows<1>,
#if BELFRY_KISSFFT
  .cpu = fourier_kernel<RealLine<KissTransform, true>>,
#endif
  .reference = fourier_kernel<RealLine<PlainTransform, true>>, .cpu_only = kByKissFft,
  .autocast = Autocast::kFull
};
const StoredOptions<FourierOptions> kStoredFft(kFft);
const StoredOptions<RealFourierOptions> kStoredRealFft(kRealFft, kInverseRealFft);

}  // namespace belfry
