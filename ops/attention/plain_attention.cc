#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "belfry/ops/attention/plain_attention_impl.h"

namespace belfry::kernels {
namespace {

// A head of a tensor [batch, time, step], as rows of doubles.
struct PlainHead {
  PlainHead(std::int64_t of_time, std::int64_t of_step, std::int64_t head_dim, std::int64_t sample,
            std::int64_t head)
      : time(of_time),
        step(of_step),
        at(sample * time * step + head * head_dim),
        columns(static_cast<std::size_t>(head_dim)),
        values(static_cast<std::size_t>(time) * columns) {}
  template <class T>
  PlainHead& load(const StoredElements<T>& stored, const void* x) {
    std::vector<T> row(columns);
    for (std::int64_t t = 0; t < time; ++t) {
      stored.load(x, at + t * step, std::ssize(row), row.data());
      std::ranges::copy(row, (*this)[t]);
    }
    return *this;
  }
  template <class T>
  void store(const StoredElements<T>& stored, void* x) {
    std::vector<T> row(columns);
    for (std::int64_t t = 0; t < time; ++t) {
      std::transform((*this)[t], (*this)[t] + columns, row.begin(),
                     [](double value) { return static_cast<T>(value); });
      stored.store(row.data(), std::ssize(row), x, at + t * step);
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

  std::int64_t time, step, at;
  std::size_t columns;
  std::vector<double> values;
};

PlainHead queries_of(const AttentionShape& s, const HeadGroup& of, std::int64_t head) {
  return {s.queries, s.q_step(), s.head_dim, of.sample, head};
}
// Of results and their gradients.
PlainHead results_of(const AttentionShape& s, const HeadGroup& of, std::int64_t head) {
  return {s.queries, s.y_step(), s.head_dim, of.sample, head};
}
PlainHead keys_of(const AttentionShape& s, const HeadGroup& of) {
  return {s.keys, s.kv_step(), s.head_dim, of.sample, of.kv_head};
}

// What the mask adds to a score: -infinity hides a key.
template <class T>
double masked(const AttentionShape& shape, const StoredElements<T>& stored, const void* mask,
              std::int64_t at) {
  if (shape.mask.kind == MaskKind::kNone) return 0;
  if (shape.mask.kind == MaskKind::kSeen)
    return static_cast<const bool*>(mask)[at] ? 0 : -std::numeric_limits<double>::infinity();
  T added;
  stored.load(mask, at, 1, &added);
  return added;
}

// The keys that a query sees, and their weights, whose sum is 1.
struct PlainWeights {
  struct Seen {
    std::int64_t key;
    double weight;
  };
  template <class T>
  PlainWeights(const AttentionShape& shape, const StoredElements<T>& stored, const void* mask,
               const HeadGroup& of, std::int64_t head, std::int64_t t, PlainHead& k,
               const double* query) {
    const std::int64_t row = shape.mask.at(of.sample, head, t);
    double sum = 0;
    log_sum = -std::numeric_limits<double>::infinity();
    for (std::int64_t s = shape.first_key(t); s < shape.end_key(t, of.keys); ++s) {
      const double added = masked(shape, stored, mask, row + s);
      if (added == -std::numeric_limits<double>::infinity()) continue;
      seen.push_back({s, shape.scale * k.product(s, query) + added});
    }
    if (seen.empty()) return;
    const double largest = std::ranges::max_element(seen, {}, &Seen::weight)->weight;
    for (Seen& s : seen) sum += s.weight = std::exp(s.weight - largest);
    for (Seen& s : seen) s.weight /= sum;
    log_sum = largest + std::log(sum);
  }

  std::vector<Seen> seen;
  double log_sum;
};

}  // namespace

template <class T>
void plain_attention_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                              const AttentionTensors<T>& tensors, const HeadGroup& of, std::byte*) {
  PlainHead k = keys_of(shape, of).load(stored, tensors.k),
            v = keys_of(shape, of).load(stored, tensors.v);
  for (std::int64_t g = 0; g < shape.group(); ++g) {
    const std::int64_t head = of.kv_head * shape.group() + g;
    PlainHead q = queries_of(shape, of, head).load(stored, tensors.q),
              y = results_of(shape, of, head);
    for (std::int64_t t = 0; t < shape.queries; ++t) {
      const PlainWeights weights(shape, stored, tensors.mask, of, head, t, k, q[t]);
      for (const auto& [s, weight] : weights.seen) y.add(t, weight, v[s]);
      tensors.log_sums[(of.sample * shape.heads + head) * shape.queries + t] =
          static_cast<T>(weights.log_sum);
    }
    y.store(stored, tensors.y);
  }
}

template <class T>
void plain_attention_grad_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                                   const AttentionGradTensors<T>& tensors, const HeadGroup& of,
                                   std::byte*) {
  PlainHead k = keys_of(shape, of).load(stored, tensors.k),
            v = keys_of(shape, of).load(stored, tensors.v);
  PlainHead dk = keys_of(shape, of), dv = keys_of(shape, of);
  for (std::int64_t g = 0; g < shape.group(); ++g) {
    const std::int64_t head = of.kv_head * shape.group() + g;
    PlainHead q = queries_of(shape, of, head).load(stored, tensors.q),
              dy = results_of(shape, of, head).load(stored, tensors.dy),
              dq = queries_of(shape, of, head);
    for (std::int64_t t = 0; t < shape.queries; ++t) {
      const PlainWeights weights(shape, stored, tensors.mask, of, head, t, k, q[t]);
      double mean = 0;
      for (const auto& [s, weight] : weights.seen) mean += weight * v.product(s, dy[t]);
      for (const auto& [s, weight] : weights.seen) {
        const double slope = weight * (v.product(s, dy[t]) - mean);
        dq.add(t, shape.scale * slope, k[s]);
        dk.add(s, shape.scale * slope, q[t]);
        dv.add(s, weight, dy[t]);
        if (tensors.d_mask)
          tensors.d_mask[shape.mask.at(of.sample, head, t) + s] += static_cast<T>(slope);
      }
    }
    dq.store(stored, tensors.dq);
  }
  dk.store(stored, tensors.dk);
  dv.store(stored, tensors.dv);
}

#define BELFRY_PLAIN_ATTENTION_OF(T)                                                            \
  template void plain_attention_of_group(const AttentionShape&, const StoredElements<T>&,       \
                                         const AttentionTensors<T>&, const HeadGroup&,          \
                                         std::byte*);                                           \
  template void plain_attention_grad_of_group(const AttentionShape&, const StoredElements<T>&,  \
                                              const AttentionGradTensors<T>&, const HeadGroup&, \
                                              std::byte*);
BELFRY_PLAIN_ATTENTION_OF(float)
BELFRY_PLAIN_ATTENTION_OF(double)

}  // namespace belfry::kernels
