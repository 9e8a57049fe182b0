#include "belfry/ops/linear_algebra/fourier_impl.h"

#if BELFRY_KISSFFT
#include <algorithm>

#include <kissfft.hh>

namespace belfry {
namespace {

// Whether 2, 3 and 5 are its only prime factors.
bool is_smooth(std::int64_t n) {
  for (const std::int64_t prime : {2, 3, 5})
    while (n % prime == 0) n /= prime;
  return n == 1;
}

std::int64_t smooth_size(std::int64_t least) {
  while (!is_smooth(least)) ++least;
  return least;
}

}  // namespace

// For smooth n it has no state that changes, so threads may share it.
class KissTransform::Library {
 public:
  Library(std::int64_t n, bool inverse) : n_(n), plan_(static_cast<std::size_t>(n), inverse) {}

  void run(const ComplexNumber* x, ComplexNumber* y) const {
    if (n_ == 1)
      y[0] = x[0];
    else
      plan_.transform(x, y);
  }

 private:
  std::int64_t n_;
  kissfft<double> plan_;
};

// With c_j = exp(-+ pi i j^2 / n), y_k = c_k sum_j (c_j x_j) conj(c_(k - j)): a cyclic convolution
// of any size from 2 n - 1 on.
struct KissTransform::Convolution {
  Convolution(std::int64_t n, bool inverse)
      : size(smooth_size(2 * n - 1)), forward(size, false), back(size, true) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t square = j * j % (2 * n);
      chirp.push_back(turn(inverse ? square : -square, 2 * n));
    }
    std::vector<ComplexNumber> conjugates(static_cast<std::size_t>(size));
    for (std::size_t j = 0; j < chirp.size(); ++j)
      conjugates[j] = conjugates[(conjugates.size() - j) % conjugates.size()] =
          std::conj(chirp[j]) / static_cast<double>(size);
    spectrum.resize(conjugates.size());
    forward.run(conjugates.data(), spectrum.data());
  }

  void run(const ComplexNumber* x, ComplexNumber* y, ComplexNumber* work) const {
    ComplexNumber* const other = work + size;
    for (std::size_t j = 0; j < chirp.size(); ++j) work[j] = product(x[j], chirp[j]);
    std::fill(work + chirp.size(), other, 0);
    forward.run(work, other);
    for (std::size_t j = 0; j < spectrum.size(); ++j) other[j] = product(other[j], spectrum[j]);
    back.run(other, work);
    for (std::size_t k = 0; k < chirp.size(); ++k) y[k] = product(work[k], chirp[k]);
  }

  std::int64_t size;
  Library forward, back;
  std::vector<ComplexNumber> chirp, spectrum;
};

KissTransform::KissTransform(std::int64_t n, bool inverse) {
  if (is_smooth(n))
    library_ = std::make_unique<const Library>(n, inverse);
  else
    convolution_ = std::make_unique<const Convolution>(n, inverse);
}

KissTransform::~KissTransform() = default;

std::int64_t KissTransform::work() const { return convolution_ ? 2 * convolution_->size : 0; }

void KissTransform::run(const ComplexNumber* x, ComplexNumber* y, ComplexNumber* work) const {
  if (convolution_)
    convolution_->run(x, y, work);
  else
    library_->run(x, y);
}

}  // namespace belfry
#endif
