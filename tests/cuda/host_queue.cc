#include "belfry/tests/cuda/host_queue.h"

#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

// A library may write what it likes there, so nothing else may lie in it.
void spoil(std::byte* workspace, std::int64_t bytes) {
  std::memset(workspace, 0xff, static_cast<std::size_t>(bytes));
}

using kernels::Stored;

// Elements of 16 bits are multiplied and added in f32.
template <class T>
void multiply(const MatMulCall& call) {
  using S = Stored<T>;
  const MatMul& s = call.matmul;
  const std::int64_t m = s.c.rows, n = s.c.columns;
  const std::int64_t k = s.transpose_a ? s.a.rows : s.a.columns;
  require<Internal>((s.transpose_a ? s.a.columns : s.a.rows) == m &&
                        (s.transpose_b ? s.b.columns : s.b.rows) == k &&
                        (s.transpose_b ? s.b.rows : s.b.columns) == n,
                    "sizes of a product do not fit");
  for (const ColumnMajor* matrix : {&s.a, &s.b, &s.c})
    require<Internal>(matrix->leading >= matrix->rows, "columns overlap");
  for (std::int64_t batch = 0; batch < s.count; ++batch) {
    const T* a = static_cast<const T*>(call.a) + batch * s.a.step;
    const T* b = static_cast<const T*>(call.b) + batch * s.b.step;
    T* c = static_cast<T*>(call.c) + batch * s.c.step;
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i) {
        typename S::Type sum = 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += S::widen(a[s.transpose_a ? i * s.a.leading + p : p * s.a.leading + i]) *
                 S::widen(b[s.transpose_b ? p * s.b.leading + j : j * s.b.leading + p]);
        c[j * s.c.leading + i] = S::narrow(sum);
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

// visit(n, y row, y column, x row, x column, row in the window, column in it) wherever a window
// meets the image.
template <class Visit>
void for_each_meeting(const Four& x, const Four& y, std::array<int, 2> window,
                      std::array<int, 2> padding, std::array<int, 2> stride,
                      std::array<int, 2> dilation, const Visit& visit) {
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const int room = x[a + 1] + 2 * padding[a] - ((window[a] - 1) * dilation[a] + 1);
    require<Internal>(room >= 0 && room / stride[a] + 1 == y[a + 1], "sizes of windows do not fit");
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
  require<Internal>(s.x[0] == s.y[0] && s.x[3] == s.filter[3] * s.groups && s.y[3] == s.filter[0] &&
                        s.y[3] % s.groups == 0,
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
  require<Internal>(s.x[0] == s.y[0] && s.x[3] == s.y[3], "sizes of a pooling do not fit");
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

}  // namespace

void HostQueue::matmul(const MatMulCall& call) {
  spoil(call.workspace, call.algorithm.workspace_bytes);
  const auto run = [&]<class T>(T) { multiply<T>(call); };
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

KernelRun gpu_kernel_on_host(KernelPlan& plan, Algorithms& algorithms) {
  QueueRun run = prepare_gpu_kernel(plan.node().op(), plan, algorithms);
  if (!run) return {};
  return [run = std::move(run)](const Pointers& p) {
    HostQueue queue(p.step());
    run(p, queue);
    queue.check();
  };
}

}  // namespace belfry::cuda
