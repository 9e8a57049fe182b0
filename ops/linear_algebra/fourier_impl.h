// Fourier transforms of one line, in f64. They are not scaled: a transform and its inverse make n
// times the line.
#pragma once
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <vector>

namespace belfry {

using ComplexNumber = std::complex<double>;

// exp(2 pi i k / n).
inline ComplexNumber turn(std::int64_t k, std::int64_t n) {
  return std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
}
// A product without the rules of C for factors that are not finite, which take time.
inline ComplexNumber product(ComplexNumber a, ComplexNumber b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// Transforms have these members. Several threads may run one at once, each with `work` of its own;
// x and y [n] do not overlap.
class PlainTransform {
 public:
  static constexpr bool kPairs = false;  // whether real numbers are taken in pairs

  PlainTransform(std::int64_t n, bool inverse) : n_(n) {
    for (std::int64_t k = 0; k < n; ++k) turns_.push_back(turn(inverse ? k : -k, n));
  }

  std::int64_t work() const { return 0; }  // complex numbers
  void run(const ComplexNumber* x, ComplexNumber* y, ComplexNumber*) const {
    for (std::int64_t k = 0; k < n_; ++k) {
      y[k] = 0;
      for (std::int64_t j = 0; j < n_; ++j)
        y[k] += product(x[j], turns_[static_cast<std::size_t>(j * k % n_)]);
    }
  }

 private:
  std::int64_t n_;
  std::vector<ComplexNumber> turns_;
};

#if BELFRY_KISSFFT
// By kissfft for n = 2^a 3^b 5^c. Others are convolutions of such a length (Bluestein's algorithm),
// as the time that the library takes for another prime factor is its square.
class KissTransform {
 public:
  static constexpr bool kPairs = true;

  KissTransform(std::int64_t n, bool inverse);
  ~KissTransform();

  std::int64_t work() const;
  void run(const ComplexNumber* x, ComplexNumber* y, ComplexNumber* work) const;

 private:
  struct Convolution;
  class Library;

  std::unique_ptr<const Library> library_;
  std::unique_ptr<const Convolution> convolution_;  // null: the library transforms the line itself
};
#endif

}  // namespace belfry
