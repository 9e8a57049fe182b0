#include <algorithm>
#include <cmath>
#include <vector>

#include "belfry/ops/attention/plain_attention_impl.h"

namespace belfry::kernels {
namespace {

// A head of a tensor, as rows of doubles.
struct PlainHead {
  explicit PlainHead(const AttentionShape& shape)
      : columns(static_cast<std::size_t>(shape.head_dim)),
        values(static_cast<std::size_t>(shape.time) * columns) {}
  template <class T>
  PlainHead(const AttentionShape& shape, const StoredElements<T>& stored, const void* x,
            std::int64_t at)
      : PlainHead(shape) {
    std::vector<T> row(columns);
    for (std::int64_t t = 0; t < shape.time; ++t) {
      stored.load(x, at + t * shape.width(), shape.head_dim, row.data());
      std::ranges::copy(row, (*this)[t]);
    }
  }
  template <class T>
  void store(const AttentionShape& shape, const StoredElements<T>& stored, void* x,
             std::int64_t at) {
    std::vector<T> row(columns);
    for (std::int64_t t = 0; t < shape.time; ++t) {
      std::transform((*this)[t], (*this)[t] + columns, row.begin(),
                     [](double value) { return static_cast<T>(value); });
      stored.store(row.data(), shape.head_dim, x, at + t * shape.width());
    }
  }
  double* operator[](std::int64_t t) {
    return values.data() + static_cast<std::size_t>(t) * columns;
  }
  void add(std::int64_t t, double factor, const double* row) {
    for (std::size_t c = 0; c < columns; ++c) (*this)[t][c] += factor * row[c];
  }
  double product(std::int64_t t, const double* row) {
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += (*this)[t][c] * row[c];
    return sum;
  }

  std::size_t columns;
  std::vector<double> values;
};

// The weights of keys 0 ... t for a query, whose sum is 1.
struct PlainWeights {
  PlainWeights(PlainHead& k, const double* query, std::int64_t t, double scale) {
    for (std::int64_t s = 0; s <= t; ++s) of.push_back(scale * k.product(s, query));
    const double largest = *std::ranges::max_element(of);
    double sum = 0;
    for (double& x : of) sum += x = std::exp(x - largest);
    for (double& x : of) x /= sum;
    log_sum = largest + std::log(sum);
  }
  double operator[](std::int64_t s) const { return of[static_cast<std::size_t>(s)]; }

  std::vector<double> of;
  double log_sum;
};

}  // namespace

template <class T>
void plain_attention_head(const AttentionShape& shape, const StoredElements<T>& stored,
                          const AttentionTensors& tensors, std::int64_t at, T* log_sums,
                          std::byte*) {
  PlainHead q(shape, stored, tensors.q, at), k(shape, stored, tensors.k, at),
      v(shape, stored, tensors.v, at), y(shape);
  for (std::int64_t t = 0; t < shape.time; ++t) {
    const PlainWeights weights(k, q[t], t, shape.scale);
    for (std::int64_t s = 0; s <= t; ++s) y.add(t, weights[s], v[s]);
    log_sums[t] = static_cast<T>(weights.log_sum);
  }
  y.store(shape, stored, tensors.y, at);
}

template <class T>
void plain_attention_head_grad(const AttentionShape& shape, const StoredElements<T>& stored,
                               const AttentionGradTensors& tensors, std::int64_t at, const T*,
                               std::byte*) {
  PlainHead dy(shape, stored, tensors.dy, at), q(shape, stored, tensors.q, at),
      k(shape, stored, tensors.k, at), v(shape, stored, tensors.v, at);
  PlainHead dq(shape), dk(shape), dv(shape);
  for (std::int64_t t = 0; t < shape.time; ++t) {
    const PlainWeights weights(k, q[t], t, shape.scale);
    double mean = 0;
    for (std::int64_t s = 0; s <= t; ++s) mean += weights[s] * v.product(s, dy[t]);
    for (std::int64_t s = 0; s <= t; ++s) {
      const double slope = shape.scale * weights[s] * (v.product(s, dy[t]) - mean);
      dq.add(t, slope, k[s]);
      dk.add(s, slope, q[t]);
      dv.add(s, weights[s], dy[t]);
    }
  }
  dq.store(shape, stored, tensors.dq, at);
  dk.store(shape, stored, tensors.dk, at);
  dv.store(shape, stored, tensors.dv, at);
}

#define BELFRY_PLAIN_ATTENTION_OF(T)                                                           \
  template void plain_attention_head(const AttentionShape&, const StoredElements<T>&,          \
                                     const AttentionTensors&, std::int64_t, T*, std::byte*);   \
  template void plain_attention_head_grad(const AttentionShape&, const StoredElements<T>&,     \
                                          const AttentionGradTensors&, std::int64_t, const T*, \
                                          std::byte*);
BELFRY_PLAIN_ATTENTION_OF(float)
BELFRY_PLAIN_ATTENTION_OF(double)

}  // namespace belfry::kernels
