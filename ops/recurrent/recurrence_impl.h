// What LSTM and GRU share on hosts and GPUs: the order of times, and the steps of both cells on one
// element of the state.
#pragma once
#include <cstddef>
#include <cstdint>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/math.h"

namespace belfry::kernels {

struct Sequences {
  std::int64_t rows, time, hidden;
  bool reverse;

  BELFRY_HD std::int64_t time_of_step(std::int64_t step) const {
    return reverse ? time - 1 - step : step;
  }
  // The number of the row's vector at time t.
  BELFRY_HD std::int64_t at(std::int64_t row, std::int64_t t) const { return row * time + t; }
  // Whether a row of this length starts at time t.
  BELFRY_HD bool starts(std::int64_t t, std::int64_t length) const {
    return t == (reverse ? length - 1 : 0);
  }
  BELFRY_HD std::int64_t before(std::int64_t at) const { return reverse ? at + 1 : at - 1; }
};

// The lengths of rows; none: all are as long as `time`.
struct Lengths {
  const std::int32_t* of;
  std::int64_t time;
  BELFRY_HD std::int64_t operator[](std::int64_t row) const { return of ? of[row] : time; }
};

// A state begins as a copy of an input, and is kept in an output.
struct StateCopy {
  std::size_t from, to;
};

// Steps of one row at one time. of() takes the pointers of a launch, whose vectors begin at row 0;
// row() moves to a row and a time; step(j, n) computes element j of n, and skip(j, n) is for rows
// that have ended. `product` is h times the hidden weights.

template <class T>
struct LstmStep {
  static constexpr std::int64_t kGates = 4;
  static constexpr std::size_t kHidden = 1, kLengths = 4;  // inputs
  static constexpr StateCopy kStates[2] = {{2, 3}, {3, 4}};
  using Element = T;
  const T *gates, *product;
  T *activations, *y, *cells, *h, *c;

  static LstmStep of(const KernelPointers& p) {
    return {p.input<T>(0),  nullptr,        p.output<T>(0), p.output<T>(1),
            p.output<T>(2), p.output<T>(3), p.output<T>(4)};
  }
  BELFRY_HD LstmStep row(const Sequences& s, std::int64_t row, std::int64_t t) const {
    const std::int64_t n = s.hidden, at = s.at(row, t) * n;
    return {gates + 4 * at, product + 4 * row * n, activations + 4 * at, y + at,
            cells + at,     h + row * n,           c + row * n};
  }
  BELFRY_HD void step(std::int64_t j, std::int64_t n) const {
    const T i = math::sigmoid(gates[j] + product[j]);
    const T f = math::sigmoid(gates[n + j] + product[n + j]);
    const T g = math::tanh(gates[2 * n + j] + product[2 * n + j]);
    const T o = math::sigmoid(gates[3 * n + j] + product[3 * n + j]);
    const T cell = f * c[j] + i * g, state = o * math::tanh(cell);
    activations[j] = i;
    activations[n + j] = f;
    activations[2 * n + j] = g;
    activations[3 * n + j] = o;
    cells[j] = cell;
    c[j] = cell;
    y[j] = state;
    h[j] = state;
  }
  BELFRY_HD void skip(std::int64_t j, std::int64_t n) const {
    for (std::int64_t gate = 0; gate < 4; ++gate) activations[gate * n + j] = 0;
    cells[j] = 0;
    y[j] = 0;
  }
};

// dh and dc are the gradients of the states after the time, then of those before it, to dh without
// what comes through the product.
template <class T>
struct LstmGradStep {
  static constexpr std::int64_t kGates = 4;
  static constexpr std::size_t kHidden = 6, kLengths = 9;  // inputs
  static constexpr StateCopy kStates[2] = {{2, 2}, {3, 3}};
  using Element = T;
  const T *activations, *dy, *cells, *y, *h0, *c0;
  T *grads, *previous, *dh, *dc;

  static LstmGradStep of(const KernelPointers& p) {
    return {p.input<T>(0), p.input<T>(1),  p.input<T>(4),  p.input<T>(5),  p.input<T>(7),
            p.input<T>(8), p.output<T>(0), p.output<T>(1), p.output<T>(2), p.output<T>(3)};
  }
  // The gradients that are multiplied by the hidden weights.
  T* multiplied() const { return grads; }
  // y, cells, h0 and c0 become the states before the time.
  BELFRY_HD LstmGradStep row(const Sequences& s, std::int64_t row, std::int64_t t,
                             bool starts) const {
    const std::int64_t n = s.hidden, at = s.at(row, t) * n, before = s.before(s.at(row, t)) * n;
    return {activations + 4 * at,
            dy + at,
            cells + at,
            y,
            starts ? h0 + row * n : y + before,
            starts ? c0 + row * n : cells + before,
            grads + 4 * at,
            previous + at,
            dh + row * n,
            dc + row * n};
  }
  BELFRY_HD void step(std::int64_t j, std::int64_t n) const {
    const T i = activations[j], f = activations[n + j], g = activations[2 * n + j],
            o = activations[3 * n + j];
    const T squashed = math::tanh(cells[j]), d = dh[j] + dy[j];
    const T d_cell = dc[j] + d * o * (T(1) - squashed * squashed);
    grads[j] = d_cell * g * (i * (T(1) - i));
    grads[n + j] = d_cell * c0[j] * (f * (T(1) - f));
    grads[2 * n + j] = d_cell * i * (T(1) - g * g);
    grads[3 * n + j] = d * squashed * (o * (T(1) - o));
    previous[j] = h0[j];
    dc[j] = d_cell * f;
    dh[j] = 0;
  }
  BELFRY_HD void skip(std::int64_t j, std::int64_t n) const {
    for (std::int64_t gate = 0; gate < 4; ++gate) grads[gate * n + j] = 0;
    previous[j] = 0;
  }
};

template <class T>
struct GruStep {
  static constexpr std::int64_t kGates = 3;
  static constexpr std::size_t kHidden = 1, kLengths = 4;  // inputs
  static constexpr StateCopy kStates[1] = {{2, 3}};
  using Element = T;
  const T *gates, *bias, *product;
  T *activations, *y, *news, *h;

  static GruStep of(const KernelPointers& p) {
    return {p.input<T>(0),  p.input<T>(3),  nullptr,       p.output<T>(0),
            p.output<T>(1), p.output<T>(2), p.output<T>(3)};
  }
  BELFRY_HD GruStep row(const Sequences& s, std::int64_t row, std::int64_t t) const {
    const std::int64_t n = s.hidden, at = s.at(row, t) * n;
    return {gates + 3 * at, bias,       product + 3 * row * n, activations + 3 * at, y + at,
            news + at,      h + row * n};
  }
  BELFRY_HD void step(std::int64_t j, std::int64_t n) const {
    const T r = math::sigmoid(gates[j] + (product[j] + bias[j]));
    const T z = math::sigmoid(gates[n + j] + (product[n + j] + bias[n + j]));
    const T fresh = product[2 * n + j] + bias[2 * n + j];
    const T candidate = math::tanh(gates[2 * n + j] + r * fresh);
    const T state = candidate + z * (h[j] - candidate);
    activations[j] = r;
    activations[n + j] = z;
    activations[2 * n + j] = candidate;
    news[j] = fresh;
    y[j] = state;
    h[j] = state;
  }
  BELFRY_HD void skip(std::int64_t j, std::int64_t n) const {
    for (std::int64_t gate = 0; gate < 3; ++gate) activations[gate * n + j] = 0;
    news[j] = 0;
    y[j] = 0;
  }
};

template <class T>
struct GruGradStep {
  static constexpr std::int64_t kGates = 3;
  static constexpr std::size_t kHidden = 5, kLengths = 7;  // inputs
  static constexpr StateCopy kStates[1] = {{2, 3}};
  using Element = T;
  const T *activations, *dy, *news, *y, *h0;
  T *grads, *hidden_grads, *previous, *dh;

  static GruGradStep of(const KernelPointers& p) {
    return {p.input<T>(0),  p.input<T>(1),  p.input<T>(3),  p.input<T>(4), p.input<T>(6),
            p.output<T>(0), p.output<T>(1), p.output<T>(2), p.output<T>(3)};
  }
  T* multiplied() const { return hidden_grads; }
  BELFRY_HD GruGradStep row(const Sequences& s, std::int64_t row, std::int64_t t,
                            bool starts) const {
    const std::int64_t n = s.hidden, at = s.at(row, t) * n, before = s.before(s.at(row, t)) * n;
    return {activations + 3 * at,
            dy + at,
            news + at,
            y,
            starts ? h0 + row * n : y + before,
            grads + 3 * at,
            hidden_grads + 3 * at,
            previous + at,
            dh + row * n};
  }
  BELFRY_HD void step(std::int64_t j, std::int64_t n) const {
    const T r = activations[j], z = activations[n + j], candidate = activations[2 * n + j];
    const T d = dh[j] + dy[j], before = h0[j];
    const T d_candidate = d * (T(1) - z) * (T(1) - candidate * candidate);
    const T d_r = d_candidate * news[j] * (r * (T(1) - r));
    const T d_z = d * (before - candidate) * (z * (T(1) - z));
    grads[j] = d_r;
    grads[n + j] = d_z;
    grads[2 * n + j] = d_candidate;
    hidden_grads[j] = d_r;
    hidden_grads[n + j] = d_z;
    hidden_grads[2 * n + j] = d_candidate * r;
    previous[j] = before;
    dh[j] = d * z;
  }
  BELFRY_HD void skip(std::int64_t j, std::int64_t n) const {
    for (std::int64_t gate = 0; gate < 3; ++gate) {
      grads[gate * n + j] = 0;
      hidden_grads[gate * n + j] = 0;
    }
    previous[j] = 0;
  }
};

}  // namespace belfry::kernels
