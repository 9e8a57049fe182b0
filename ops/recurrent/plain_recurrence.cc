#include <algorithm>
#include <cmath>
#include <vector>

#include "belfry/ops/recurrent/plain_recurrence_impl.h"

namespace belfry::kernels {
namespace {

using Doubles = std::vector<double>;

double plain_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Vectors of `n` elements of a tensor.
template <class T>
Doubles vector_of(const T* x, std::int64_t i, std::int64_t n) {
  return Doubles(x + i * n, x + (i + 1) * n);
}

template <class T>
void store_vector(const Doubles& from, T* x, std::int64_t i) {
  std::transform(from.begin(), from.end(), x + i * static_cast<std::int64_t>(from.size()),
                 [](double value) { return static_cast<T>(value); });
}

std::size_t count_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// h times the hidden weights [hidden, columns].
template <class T>
Doubles times(const Doubles& h, const T* weights, std::int64_t columns) {
  Doubles result(count_of(columns));
  for (std::size_t k = 0; k < h.size(); ++k)
    for (std::size_t j = 0; j < result.size(); ++j)
      result[j] += h[k] * static_cast<double>(weights[k * result.size() + j]);
  return result;
}

// The gradients of gates times the transposed weights.
template <class T>
Doubles times_transposed(const Doubles& grads, const T* weights, std::int64_t hidden) {
  Doubles result(count_of(hidden));
  for (std::size_t k = 0; k < result.size(); ++k)
    for (std::size_t j = 0; j < grads.size(); ++j)
      result[k] += grads[j] * static_cast<double>(weights[k * grads.size() + j]);
  return result;
}

// A vector of a tensor [rows, time, hidden] before time t, or else of the first states.
template <class T>
Doubles vector_before(const Sequences& s, const T* x, const T* first, std::int64_t row,
                      std::int64_t t, std::int64_t length) {
  return s.starts(t, length) ? vector_of(first, row, s.hidden)
                             : vector_of(x, s.before(s.at(row, t)), s.hidden);
}

}  // namespace

template <class T>
void plain_lstm(const Sequences& s, const Lengths& lengths, const KernelPointers& p) {
  const std::size_t n = count_of(s.hidden);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    Doubles h = vector_of(p.input<T>(2), row, s.hidden),
            c = vector_of(p.input<T>(3), row, s.hidden);
    for (std::int64_t step = 0; step < s.time; ++step) {
      const std::int64_t t = s.time_of_step(step), at = s.at(row, t);
      Doubles gates = vector_of(p.input<T>(0), at, 4 * s.hidden), y(n), cells(n);
      if (t >= lengths[row]) {
        std::ranges::fill(gates, 0);
      } else {
        const Doubles product = times(h, p.input<T>(1), 4 * s.hidden);
        for (std::size_t j = 0; j < 4 * n; ++j)
          gates[j] =
              j / n == 2 ? std::tanh(gates[j] + product[j]) : plain_sigmoid(gates[j] + product[j]);
        for (std::size_t j = 0; j < n; ++j) {
          cells[j] = c[j] = gates[n + j] * c[j] + gates[j] * gates[2 * n + j];
          y[j] = h[j] = gates[3 * n + j] * std::tanh(c[j]);
        }
      }
      store_vector(gates, p.output<T>(0), at);
      store_vector(y, p.output<T>(1), at);
      store_vector(cells, p.output<T>(2), at);
    }
    store_vector(h, p.output<T>(3), row);
    store_vector(c, p.output<T>(4), row);
  }
}

template <class T>
void plain_lstm_grad(const Sequences& s, const Lengths& lengths, const KernelPointers& p) {
  const std::size_t n = count_of(s.hidden);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    Doubles dh = vector_of(p.input<T>(2), row, s.hidden),
            dc = vector_of(p.input<T>(3), row, s.hidden);
    for (std::int64_t step = s.time - 1; step >= 0; --step) {
      const std::int64_t t = s.time_of_step(step), at = s.at(row, t), length = lengths[row];
      const Doubles a = vector_of(p.input<T>(0), at, 4 * s.hidden);
      Doubles grads(4 * n), h(n);
      if (t < length) {
        const Doubles dy = vector_of(p.input<T>(1), at, s.hidden),
                      cells = vector_of(p.input<T>(4), at, s.hidden),
                      c = vector_before(s, p.input<T>(4), p.input<T>(8), row, t, length);
        h = vector_before(s, p.input<T>(5), p.input<T>(7), row, t, length);
        for (std::size_t j = 0; j < n; ++j) {
          const double i = a[j], f = a[n + j], g = a[2 * n + j], o = a[3 * n + j];
          const double squashed = std::tanh(cells[j]), d = dh[j] + dy[j];
          dc[j] += d * o * (1 - squashed * squashed);
          grads[j] = dc[j] * g * i * (1 - i);
          grads[n + j] = dc[j] * c[j] * f * (1 - f);
          grads[2 * n + j] = dc[j] * i * (1 - g * g);
          grads[3 * n + j] = d * squashed * o * (1 - o);
          dc[j] *= f;
        }
        dh = times_transposed(grads, p.input<T>(6), s.hidden);
      }
      store_vector(grads, p.output<T>(0), at);
      store_vector(h, p.output<T>(1), at);
    }
    store_vector(dh, p.output<T>(2), row);
    store_vector(dc, p.output<T>(3), row);
  }
}

template <class T>
void plain_gru(const Sequences& s, const Lengths& lengths, const KernelPointers& p) {
  const std::size_t n = count_of(s.hidden);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    Doubles h = vector_of(p.input<T>(2), row, s.hidden);
    for (std::int64_t step = 0; step < s.time; ++step) {
      const std::int64_t t = s.time_of_step(step), at = s.at(row, t);
      Doubles gates = vector_of(p.input<T>(0), at, 3 * s.hidden), y(n), news(n);
      if (t >= lengths[row]) {
        std::ranges::fill(gates, 0);
      } else {
        Doubles of_h = times(h, p.input<T>(1), 3 * s.hidden);
        for (std::size_t j = 0; j < 3 * n; ++j) of_h[j] += static_cast<double>(p.input<T>(3)[j]);
        for (std::size_t j = 0; j < 2 * n; ++j) gates[j] = plain_sigmoid(gates[j] + of_h[j]);
        for (std::size_t j = 0; j < n; ++j) {
          const double r = gates[j], z = gates[n + j];
          news[j] = of_h[2 * n + j];
          gates[2 * n + j] = std::tanh(gates[2 * n + j] + r * news[j]);
          y[j] = h[j] = (1 - z) * gates[2 * n + j] + z * h[j];
        }
      }
      store_vector(gates, p.output<T>(0), at);
      store_vector(y, p.output<T>(1), at);
      store_vector(news, p.output<T>(2), at);
    }
    store_vector(h, p.output<T>(3), row);
  }
}

template <class T>
void plain_gru_grad(const Sequences& s, const Lengths& lengths, const KernelPointers& p) {
  const std::size_t n = count_of(s.hidden);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    Doubles dh = vector_of(p.input<T>(2), row, s.hidden);
    for (std::int64_t step = s.time - 1; step >= 0; --step) {
      const std::int64_t t = s.time_of_step(step), at = s.at(row, t), length = lengths[row];
      const Doubles a = vector_of(p.input<T>(0), at, 3 * s.hidden);
      Doubles of_x(3 * n), of_h(3 * n), h(n);
      if (t < length) {
        const Doubles dy = vector_of(p.input<T>(1), at, s.hidden),
                      news = vector_of(p.input<T>(3), at, s.hidden);
        h = vector_before(s, p.input<T>(4), p.input<T>(6), row, t, length);
        Doubles direct(n);
        for (std::size_t j = 0; j < n; ++j) {
          const double r = a[j], z = a[n + j], candidate = a[2 * n + j], d = dh[j] + dy[j];
          of_x[2 * n + j] = d * (1 - z) * (1 - candidate * candidate);
          of_x[j] = of_x[2 * n + j] * news[j] * r * (1 - r);
          of_x[n + j] = d * (h[j] - candidate) * z * (1 - z);
          direct[j] = d * z;
        }
        of_h = of_x;
        for (std::size_t j = 0; j < n; ++j) of_h[2 * n + j] *= a[j];
        dh = times_transposed(of_h, p.input<T>(5), s.hidden);
        for (std::size_t j = 0; j < n; ++j) dh[j] += direct[j];
      }
      store_vector(of_x, p.output<T>(0), at);
      store_vector(of_h, p.output<T>(1), at);
      store_vector(h, p.output<T>(2), at);
    }
    store_vector(dh, p.output<T>(3), row);
  }
}

#define BELFRY_PLAIN_RECURRENCES_OF(T)                                                       \
  template void plain_lstm<T>(const Sequences&, const Lengths&, const KernelPointers&);      \
  template void plain_lstm_grad<T>(const Sequences&, const Lengths&, const KernelPointers&); \
  template void plain_gru<T>(const Sequences&, const Lengths&, const KernelPointers&);       \
  template void plain_gru_grad<T>(const Sequences&, const Lengths&, const KernelPointers&);
BELFRY_PLAIN_RECURRENCES_OF(float)
BELFRY_PLAIN_RECURRENCES_OF(double)

}  // namespace belfry::kernels
