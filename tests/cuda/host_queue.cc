#include "belfry/tests/cuda/host_queue.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

// Libraries may write anything into their workspace, so this does.
void spoil(std::byte* workspace, std::int64_t bytes) {
  std::memset(workspace, 0xff, static_cast<std::size_t>(bytes));
}

using kernels::Stored;

// Elements of 16 bits are multiplied and added in f32. C is the type of c.
template <class T, class C = T>
void multiply(const MatMulCall& call) {
  using S = Stored<T>;
  const MatMul& s = call.matmul;
  const std::int64_t m = s.c.rows, n = s.c.columns;
  const std::int64_t k = s.transpose_a ? s.a.rows : s.a.columns;
  require<InternalError>((s.transpose_a ? s.a.columns : s.a.rows) == m &&
                             (s.transpose_b ? s.b.columns : s.b.rows) == k &&
                             (s.transpose_b ? s.b.rows : s.b.columns) == n,
                         "sizes of a product do not fit");
  for (const ColumnMajor* matrix : {&s.a, &s.b, &s.c})
    require<InternalError>(matrix->leading >= matrix->rows, "columns overlap");
  for (std::int64_t batch = 0; batch < s.count; ++batch) {
    const T* a = static_cast<const T*>(call.a) + batch * s.a.step;
    const T* b = static_cast<const T*>(call.b) + batch * s.b.step;
    C* c = static_cast<C*>(call.c) + batch * s.c.step;
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i) {
        C& to = c[j * s.c.leading + i];
        typename S::Type sum = s.added ? Stored<C>::widen(to) : 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += S::widen(a[s.transpose_a ? i * s.a.leading + p : p * s.a.leading + i]) *
                 S::widen(b[s.transpose_b ? p * s.b.leading + j : j * s.b.leading + p]);
        to = Stored<C>::narrow(sum);
      }
  }
}

using Four = std::array<int, 4>;

std::int64_t at(const Four& shape, int n, int h, int w, int c) {
  return ((std::int64_t{n} * shape[1] + h) * shape[2] + w) * shape[3] + c;
}

std::int64_t elements(const Four& shape) {
  return std::int64_t{shape[0]} * shape[1] * shape[2] * shape[3];
}

// Calls visit(n, y row, y column, x row, x column, row and column in the window) wherever a window
// meets the image.
template <class Visit>
void for_each_meeting(const Four& x, const Four& y, std::array<int, 2> window,
                      std::array<int, 2> padding, std::array<int, 2> stride,
                      std::array<int, 2> dilation, const Visit& visit) {
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const int room = x[a + 1] + 2 * padding[a] - ((window[a] - 1) * dilation[a] + 1);
    require<InternalError>(room >= 0 && room / stride[a] + 1 == y[a + 1],
                           "sizes of windows do not fit");
  }
  for (int n = 0; n < y[0]; ++n)
    for (int row = 0; row < y[1]; ++row)
      for (int column = 0; column < y[2]; ++column)
        for (int i = 0; i < window[0]; ++i)
          for (int j = 0; j < window[1]; ++j) {
            const int x_row = row * stride[0] + i * dilation[0] - padding[0];
            const int x_column = column * stride[1] + j * dilation[1] - padding[1];
            if (x_row < 0 || x_row >= x[1] || x_column < 0 || x_column >= x[2]) continue;
            visit(n, row, column, x_row, x_column, i, j);
          }
}

template <class T>
void convolve_as(const ConvolutionCall& call) {
  const Convolution& s = call.convolution;
  require<InternalError>(s.x[0] == s.y[0] && s.x[3] == s.filter[3] * s.groups &&
                             s.y[3] == s.filter[0] && s.y[3] % s.groups == 0,
                         "channels or images of a convolution do not fit");
  const T* first = static_cast<const T*>(call.first);
  const T* second = static_cast<const T*>(call.second);
  T* out = static_cast<T*>(call.out);
  const Four& written = s.kind == Convolution::Kind::kForward     ? s.y
                        : s.kind == Convolution::Kind::kGradInput ? s.x
                                                                  : s.filter;
  std::fill_n(out, elements(written), T(0));
  for_each_meeting(
      s.x, s.y, {s.filter[1], s.filter[2]}, s.padding, s.stride, s.dilation,
      [&](int n, int row, int column, int x_row, int x_column, int i, int j) {
        for (int o = 0; o < s.y[3]; ++o)
          for (int c = 0; c < s.filter[3]; ++c) {
            const int group = o * s.groups / s.y[3];
            const std::int64_t x = at(s.x, n, x_row, x_column, group * s.filter[3] + c);
            const std::int64_t y = at(s.y, n, row, column, o), f = at(s.filter, o, i, j, c);
            switch (s.kind) {
              case Convolution::Kind::kForward: out[y] += first[x] * second[f]; break;
              case Convolution::Kind::kGradInput: out[x] += first[y] * second[f]; break;
              case Convolution::Kind::kGradFilter: out[f] += first[x] * second[y]; break;
            }
          }
      });
}

template <class T>
void pool_as(const PoolingCall& call) {
  const Pooling& s = call.pooling;
  require<InternalError>(s.x[0] == s.y[0] && s.x[3] == s.y[3], "sizes of a pooling do not fit");
  const T* in = static_cast<const T*>(call.in);
  T* out = static_cast<T*>(call.out);
  std::vector<T> pixels(static_cast<std::size_t>(s.y[1] * s.y[2]));
  const auto under = [&](int row, int column) -> T& {
    return pixels[static_cast<std::size_t>(row * s.y[2] + column)];
  };
  const auto for_each = [&](const auto& visit) {
    for_each_meeting(s.x, s.y, s.window, s.padding, s.stride, {1, 1}, visit);
  };
  for_each([&](int n, int row, int column, int, int, int, int) {
    if (n == 0) under(row, column) += 1;
  });
  std::fill_n(out, elements(s.gradient ? s.x : s.y), T(0));
  for_each([&](int n, int row, int column, int x_row, int x_column, int, int) {
    for (int c = 0; c < s.x[3]; ++c) {
      const std::int64_t x = at(s.x, n, x_row, x_column, c), y = at(s.y, n, row, column, c);
      if (s.gradient)
        out[x] += in[y] / under(row, column);
      else
        out[y] += in[x];
    }
  });
  if (s.gradient) return;
  for (int n = 0; n < s.y[0]; ++n)
    for (int row = 0; row < s.y[1]; ++row)
      for (int column = 0; column < s.y[2]; ++column)
        for (int c = 0; c < s.y[3]; ++c) out[at(s.y, n, row, column, c)] /= under(row, column);
}

std::vector<float> widened(DType dtype, const void* from, std::int64_t count) {
  std::vector<float> wide(static_cast<std::size_t>(count));
  kernels::half_conversion(dtype).widen(static_cast<const std::uint16_t*>(from), wide.data(),
                                        count);
  return wide;
}

void narrow(DType dtype, const std::vector<float>& from, void* to) {
  kernels::half_conversion(dtype).narrow(from.data(), static_cast<std::uint16_t*>(to),
                                         std::ssize(from));
}

void convolve_half(ConvolutionCall call) {
  const Convolution& s = call.convolution;
  const bool filter = s.kind == Convolution::Kind::kGradFilter;
  const bool input = s.kind == Convolution::Kind::kGradInput;
  const std::vector<float> first = widened(s.dtype, call.first, elements(input ? s.y : s.x));
  const std::vector<float> second =
      widened(s.dtype, call.second, elements(filter ? s.y : s.filter));
  const std::int64_t count = elements(filter ? s.filter : input ? s.x : s.y);
  std::vector<float> out(static_cast<std::size_t>(count));
  void* const to = call.out;
  call.first = first.data();
  call.second = second.data();
  call.out = out.data();
  convolve_as<float>(call);
  narrow(s.dtype, out, to);
}

void pool_half(PoolingCall call) {
  const Pooling& s = call.pooling;
  const std::vector<float> in = widened(s.dtype, call.in, elements(s.gradient ? s.y : s.x));
  std::vector<float> out(static_cast<std::size_t>(elements(s.gradient ? s.x : s.y)));
  void* const to = call.out;
  call.in = in.data();
  call.out = out.data();
  pool_as<float>(call);
  narrow(s.dtype, out, to);
}

// One head of one sample; rows of tensors are `step` elements apart.
struct HostHead {
  std::int64_t time, columns, step;
  float scale;

  float dot(const float* a, std::int64_t t, const float* b, std::int64_t s) const {
    float sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += a[t * step + c] * b[s * step + c];
    return sum;
  }
  void add(float times, const float* from, std::int64_t t, float* to, std::int64_t s) const {
    for (std::int64_t c = 0; c < columns; ++c) to[s * step + c] += times * from[t * step + c];
  }

  void attend(const float* q, const float* k, const float* v, float* y, float* log_sums) const {
    for (std::int64_t t = 0; t < time; ++t) {
      std::vector<float> weights;
      for (std::int64_t s = 0; s <= t; ++s) weights.push_back(scale * dot(q, t, k, s));
      const float largest = *std::ranges::max_element(weights);
      float sum = 0;
      for (float& weight : weights) sum += weight = std::exp(weight - largest);
      for (std::int64_t s = 0; s <= t; ++s)
        add(weights[static_cast<std::size_t>(s)] / sum, v, s, y, t);
      log_sums[t] = largest + std::log(sum);
    }
  }

  void differentiate(const float* dy, const float* q, const float* k, const float* v,
                     const float* y, const float* log_sums, float* dq, float* dk, float* dv) const {
    for (std::int64_t t = 0; t < time; ++t) {
      const float mean = dot(dy, t, y, t);
      for (std::int64_t s = 0; s <= t; ++s) {
        const float share = std::exp(scale * dot(q, t, k, s) - log_sums[t]);
        const float grad = share * (dot(dy, t, v, s) - mean) * scale;
        add(share, dy, t, dv, s);
        add(grad, k, s, dq, t);
        add(grad, q, t, dk, s);
      }
    }
  }
};

// Tensors are dense here; those of the call may be columns of one.
void attend_half(const AttentionCall& call) {
  const Attention& s = call.attention;
  const HostHead head{s.time, s.head_dim, s.heads * s.head_dim, s.scale};
  const std::int64_t rows = s.batch * s.time, first = s.gradient ? 1 : 0;
  const auto each_row = [&](bool of_heads, auto* x, const auto& f) {
    const std::int64_t step = s.joined && of_heads ? 3 * head.step : head.step;
    for (std::int64_t row = 0; row < rows; ++row) f(row * head.step, x + row * step);
  };
  std::vector<std::vector<float>> in, out;
  for (std::int64_t i = 0; i < (s.gradient ? 5 : 3); ++i) {
    in.emplace_back(static_cast<std::size_t>(rows * head.step));
    each_row(i >= first && i < first + 3,
             static_cast<const std::uint16_t*>(call.in[static_cast<std::size_t>(i)]),
             [&](std::int64_t at, const std::uint16_t* x) {
               std::ranges::copy(widened(s.dtype, x, head.step), in.back().begin() + at);
             });
  }
  for (std::size_t i = 0; i < (s.gradient ? 3u : 1u); ++i)
    out.emplace_back(static_cast<std::size_t>(rows * head.step));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t at = b * s.time * head.step + h * s.head_dim;
      const std::int64_t row = (b * s.heads + h) * s.time;
      const auto from = [&](std::size_t i) { return in[i].data() + at; };
      const auto to = [&](std::size_t i) { return out[i].data() + at; };
      if (s.gradient)
        head.differentiate(from(0), from(1), from(2), from(3), from(4),
                           static_cast<const float*>(call.in[5]) + row, to(0), to(1), to(2));
      else
        head.attend(from(0), from(1), from(2), to(0), static_cast<float*>(call.out[1]) + row);
    }
  for (std::size_t i = 0; i < out.size(); ++i)
    each_row(s.gradient, static_cast<std::uint16_t*>(call.out[i]),
             [&](std::int64_t at, std::uint16_t* x) {
               const auto from = out[i].begin() + at;
               narrow(s.dtype, std::vector<float>(from, from + head.step), x);
             });
}

// What a kernel writes.
class WrittenBytes {
 public:
  explicit WrittenBytes(const KernelPlan& plan) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(plan.op().writes); ++i)
      variables_.push_back(static_cast<std::size_t>(plan.input(i).bytes()));
    for (std::size_t i = 0; i < plan.outputs(); ++i)
      outputs_.push_back(static_cast<std::size_t>(plan.output(i).bytes()));
  }

  std::vector<std::vector<std::byte>> copy(const KernelPointers& p) const {
    std::vector<std::vector<std::byte>> all;
    for (const std::span<std::byte> tensor : tensors(p))
      all.emplace_back(tensor.begin(), tensor.end());
    return all;
  }
  void restore(const KernelPointers& p, const std::vector<std::vector<std::byte>>& from) const {
    const std::vector<std::span<std::byte>> to = tensors(p);
    for (std::size_t i = 0; i < to.size(); ++i) std::ranges::copy(from[i], to[i].begin());
  }

 private:
  std::vector<std::span<std::byte>> tensors(const KernelPointers& p) const {
    std::vector<std::span<std::byte>> all;
    for (std::size_t i = 0; i < variables_.size(); ++i)
      all.emplace_back(p.written<std::byte>(i), variables_[i]);
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      all.emplace_back(p.output<std::byte>(i), outputs_[i]);
    return all;
  }

  std::vector<std::size_t> variables_, outputs_;  // bytes of each
};

}  // namespace

void HostQueue::matmul(const MatMulCall& call) {
  spoil(call.workspace, call.algorithm.workspace_bytes);
  const auto run = [&]<class T>(T) {
    if constexpr (sizeof(T) == 2)
      if (call.matmul.wide) return multiply<T, float>(call);
    multiply<T>(call);
  };
  kernels::visit_half_or(
      call.matmul.dtype, [](DType dtype, const auto& f) { visit_floating(dtype, f); }, run);
}

void HostQueue::convolve(const ConvolutionCall& call) {
  spoil(call.workspace, call.algorithm.workspace_bytes);
  if (is_half(call.convolution.dtype))
    convolve_half(call);
  else
    visit_floating(call.convolution.dtype, [&]<class T>(T) { convolve_as<T>(call); });
  spoil(call.workspace, call.algorithm.workspace_bytes);
}

void HostQueue::pool(const PoolingCall& call) {
  if (is_half(call.pooling.dtype)) return pool_half(call);
  visit_floating(call.pooling.dtype, [&]<class T>(T) { pool_as<T>(call); });
}

void HostQueue::attend(const AttentionCall& call) {
  spoil(call.workspace, call.algorithm.workspace_bytes);
  attend_half(call);
  spoil(call.workspace, call.algorithm.workspace_bytes);
}

KernelRun in_orders(const KernelPlan& plan, QueueRun run, int orders) {
  return [run = std::move(run), written = WrittenBytes(plan), workspace = plan.workspace_bytes(),
          name = plan.op().name, orders](const KernelPointers& p) {
    const auto run_in = [&](int order) {
      HostQueue queue(p.step(), order);
      run(p, queue);
      queue.check();
    };
    if (orders == 1) return run_in(1);
    const auto before = written.copy(p);
    run_in(1);
    const auto after = written.copy(p);
    for (int order = 2; order <= orders; ++order) {
      written.restore(p, before);
      spoil(p.workspace(), workspace);
      run_in(order);
      require<InternalError>(written.copy(p) == after, name, ": order ", order,
                             " of blocks and threads gives other bits than order 1: two of them "
                             "touch one place in one phase");
    }
  };
}

}  // namespace belfry::cuda
