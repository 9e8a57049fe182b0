// Fourier transforms of real numbers, by those of complex numbers.
#pragma once
#include "belfry/ops/linear_algebra/fourier_impl.h"

namespace belfry {

// Of n real numbers, which have n / 2 + 1 frequencies. If n is even, Transform may take pairs of
// them as complex numbers z. With z_k and z_(h - k), h = n / 2, their own frequencies follow, and
// back:
//   x_k = ((z_k + conj(z_(h - k))) - i exp(-2 pi i k / n) (z_k - conj(z_(h - k)))) / 2
//   z_k = (x_k + conj(x_(h - k))) + i exp(2 pi i k / n) (x_k - conj(x_(h - k)))
template <class Transform>
class RealTransform {
 public:
  RealTransform(std::int64_t n, bool inverse)
      : n_(n),
        pairs_(n % 2 == 0 && Transform::kPairs),
        line_(pairs_ ? n / 2 : n),
        transform_(line_, inverse) {
    for (std::int64_t k = 0; pairs_ && k <= line_; ++k) turns_.push_back(turn(inverse ? k : -k, n));
  }

  std::int64_t work() const { return 2 * line_ + transform_.work(); }  // complex numbers

  // Calls put(k, x) with each frequency x of the numbers get(0) ... get(n - 1).
  template <class Get, class Put>
  void run(const Get& get, const Put& put, ComplexNumber* work) const {
    ComplexNumber* const z = work + line_;
    for (std::int64_t i = 0; i < line_; ++i)
      work[i] = pairs_ ? ComplexNumber(get(2 * i), get(2 * i + 1)) : ComplexNumber(get(i));
    transform_.run(work, z, z + line_);
    for (std::int64_t k = 0; k <= n_ / 2; ++k)
      put(k, pairs_ ? 0.5 * combined(z[k % line_], z[(line_ - k) % line_], k, -1) : z[k]);
  }

  // The inverse: calls put(i, x) with each number x of the frequencies get(0) ... get(n / 2).
  template <class Get, class Put>
  void run_back(const Get& get, const Put& put, ComplexNumber* work) const {
    ComplexNumber* const z = work + line_;
    for (std::int64_t k = 0; k < line_; ++k)
      work[k] = pairs_        ? combined(get(k), get(line_ - k), k, 1)
                : k <= n_ / 2 ? get(k)
                              : std::conj(get(n_ - k));
    transform_.run(work, z, z + line_);
    for (std::int64_t i = 0; i < line_; ++i) {
      put(pairs_ ? 2 * i : i, z[i].real());
      if (pairs_) put(2 * i + 1, z[i].imag());
    }
  }

 private:
  // (a + conj(b)) + sign i exp(...) (a - conj(b))
  ComplexNumber combined(ComplexNumber a, ComplexNumber b, std::int64_t k, double sign) const {
    const ComplexNumber difference = sign * (a - std::conj(b));
    return a + std::conj(b) +
           product(turns_[static_cast<std::size_t>(k)], {-difference.imag(), difference.real()});
  }

  std::int64_t n_;
  bool pairs_;
  std::int64_t line_;
  Transform transform_;
  std::vector<ComplexNumber> turns_;
};

}  // namespace belfry
