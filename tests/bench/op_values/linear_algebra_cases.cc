// Systems of equations, Cholesky factors and Fourier transforms.
#include "belfry/ops/linear_algebra/cholesky.h"
#include "belfry/ops/linear_algebra/fft.h"
#include "belfry/ops/linear_algebra/solve.h"
#include "belfry/ops/linear_algebra/triangular_solve.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

Shape joined(const Shape& leading, std::initializer_list<std::int64_t> last) {
  std::vector<std::int64_t> dims;
  for (std::size_t axis = 0; axis < leading.rank(); ++axis) dims.push_back(leading[axis]);
  dims.insert(dims.end(), last);
  return Shape(dims);
}

// x x^T + n I. The script does the same.
Output positive(Output x) {
  const std::int64_t n = x.shape().back();
  return matmul(x, x, {.transpose_b = true}) +
         eye(x.graph(), n, x.dtype()) * static_cast<double>(n);
}

// x + 3 n I: far from singular.
Output regular(Output x) {
  const std::int64_t n = x.shape().back();
  return x + eye(x.graph(), n, x.dtype()) * static_cast<double>(3 * n);
}

OpUse cholesky_use(Random& random) {
  const int n = random.integer(1, 12);
  return {[](Inputs x) { return cholesky(positive(x[0])); },
          {random.values(joined(random.shape(0, 2), {n, n}))}};
}

OpUse cholesky_solve_use(Random& random) {
  const int n = random.integer(1, 9);
  const Shape leading = random.shape(0, 2);
  return {[](Inputs x) { return cholesky_solve(cholesky(positive(x[0])), x[1]); },
          {random.values(joined(leading, {n, n})),
           random.values(joined(leading, {n, random.integer(1, 4)}))}};
}

// A matrix for each right side, or one for all; right sides of one column, or of several.
struct EquationsUse {
  Tensor a, b;
};
EquationsUse equations(Random& random) {
  const int n = random.integer(1, 12);
  const Shape leading = random.shape(0, 2);
  const bool vectors = random.coin(), one_matrix = !vectors && random.coin();
  return {random.values(joined(one_matrix ? Shape{} : leading, {n, n})),
          vectors ? random.values(joined(leading, {n}))
                  : random.values(joined(leading, {n, random.integer(1, 9)}))};
}

OpUse solve_use(Random& random) {
  const auto [a, b] = equations(random);
  return {[](Inputs x) { return solve(regular(x[0]), x[1]); }, {a, b}};
}

OpUse triangular_solve_use(Random& random) {
  const auto [a, b] = equations(random);
  const TriangularSolveOptions options{.upper = random.coin(), .transpose = random.coin()};
  return {[=](Inputs x) { return triangular_solve(regular(x[0]), x[1], options); },
          {a, b},
          JsonValue::object().set("upper", options.upper).set("transpose", options.transpose)};
}

struct FftUse {
  FftOptions options;
  JsonValue named;
};
FftUse fft_options(Random& random, std::size_t rank) {
  const std::pair<FftNorm, const char*> norms[] = {
      {FftNorm::kBackward, "backward"}, {FftNorm::kForward, "forward"}, {FftNorm::kOrtho, "ortho"}};
  const auto [norm, name] = norms[random.integer(0, 2)];
  const int axis = random.integer(-static_cast<int>(rank), static_cast<int>(rank) - 1);
  const int n = random.coin() ? random.integer(1, 20) : 0;
  return {{.n = n, .axis = axis, .norm = norm},
          JsonValue::object().set("n", n).set("axis", axis).set("norm", name)};
}

template <Output transform(Output, FftOptions, At), bool complex>
OpUse fft_use(Random& random) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(random.integer(1, 3)));
  for (std::int64_t& dim : dims) dim = random.integer(2, 16);
  const auto [options, named] = fft_options(random, dims.size());
  if (complex) dims.push_back(2);
  return {[options = options](Inputs x) { return transform(x[0], options, {}); },
          {random.values(Shape(dims))},
          named};
}

OpUse complex_mul_use(Random& random) {
  const Shape leading = random.shape(1, 2);
  return {[](Inputs x) { return complex_mul(x[0], x[1]); },
          {random.values(joined(leading, {2})), random.values(joined({leading.back()}, {2}))}};
}

}  // namespace

std::vector<OpCase> linear_algebra_cases() {
  return {{"cholesky", cholesky_use},
          {"cholesky_solve", cholesky_solve_use},
          {"solve", solve_use},
          {"triangular_solve", triangular_solve_use},
          {"fft", fft_use<fft, true>},
          {"ifft", fft_use<ifft, true>},
          {"rfft", fft_use<rfft, false>},
          {"irfft", fft_use<irfft, true>},
          {"complex_mul", complex_mul_use}};
}

}  // namespace belfry::bench
