// Calls of cuBLASLt and cuDNN by kernels of the module: plain values with everything that the
// libraries are given. An algorithm is chosen for a call without its pointers.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "belfry/framework/base/dtype.h"

namespace belfry::cuda {

// How elements are multiplied. Products of 16-bit elements are exact and added in f32.
enum class Compute : std::uint8_t {
  kExact,  // as they are
  kTf32,   // f32 is first rounded to tf32
};

// A matrix column after column, as cuBLASLt takes it.
struct ColumnMajor {
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;  // elements from one column to the next
  std::int64_t step = 0;     // elements from one matrix of a batch to the next

  auto operator<=>(const ColumnMajor&) const = default;
};

// c = op(a) op(b) for each of `count` matrices; op transposes or does not. No size is 0.
struct MatMul {
  DType dtype = DType::kF32;
  Compute compute = Compute::kExact;
  std::int64_t count = 1;
  ColumnMajor a, b, c;
  bool transpose_a = false, transpose_b = false;
  bool wide = false;   // c is of f32, a and b of 16 bits
  bool added = false;  // the product is added to c

  auto operator<=>(const MatMul&) const = default;
};

struct MatMulAlgorithm {
  std::array<std::uint64_t, 8> algorithm{};  // cublasLtMatmulAlgo_t
  std::int64_t workspace_bytes = 0;
};

struct MatMulCall {
  MatMul matmul;
  MatMulAlgorithm algorithm;
  const void* a;
  const void* b;
  void* c;
  std::byte* workspace;  // of algorithm.workspace_bytes
};

// A convolution of x with a filter to y, or one of its gradients. Padding is equal on both sides of
// an axis. No size is 0, no tensor has more than 2^31 - 1 elements.
struct Convolution {
  enum class Kind : std::uint8_t { kForward, kGradInput, kGradFilter };

  Kind kind = Kind::kForward;
  DType dtype = DType::kF32;
  Compute compute = Compute::kExact;
  std::array<int, 4> x{};       // n, h, w, in
  std::array<int, 4> filter{};  // out, h, w, in / groups
  std::array<int, 4> y{};       // n, h, w, out
  std::array<int, 2> padding{}, stride{1, 1}, dilation{1, 1};
  int groups = 1;

  auto operator<=>(const Convolution&) const = default;
  // "Conv2dGradInput f32 x [64,28,28,32] filter [64,5,5,32] y [64,28,28,64] padding [2,2] stride
  // [1,1]", and " dilation [2,2]" and " groups 4" where they are not 1.
  std::string str() const;
};

// An algorithm by which cuDNN computes a call.
struct CudnnAlgorithm {
  // cuDNN's own, of a convolution's kind or a recurrence; for attention the place in cuDNN's list.
  int number = 0;
  std::int64_t workspace_bytes = 0;
  bool deterministic = false;  // gives the same bits each time

  bool operator==(const CudnnAlgorithm&) const = default;
};

struct ConvolutionCall {
  Convolution convolution;
  CudnnAlgorithm algorithm;
  const void* first;   // x; dy for kGradInput
  const void* second;  // filter; dy for kGradFilter
  void* out;           // y, dx or the gradient of the filter
  std::byte* workspace;
};

// Average pooling, or its gradient: y is the mean of the pixels of x under each window, without
// padding. As for convolutions, padding is equal on both sides and no size is 0.
struct Pooling {
  bool gradient = false;
  DType dtype = DType::kF32;
  std::array<int, 4> x{}, y{};  // n, h, w, c
  std::array<int, 2> window{}, padding{}, stride{1, 1};

  auto operator<=>(const Pooling&) const = default;
  // "AvgPool f32 x [64,28,28,32] y [64,14,14,32] window [2,2] padding [0,0] stride [2,2]".
  std::string str() const;
};

struct PoolingCall {
  Pooling pooling;
  const void* in;  // x, or dy
  void* out;       // y, or dx
};

// Causal attention of tensors [batch, time, heads, head_dim] of 16 bits, or its gradient. No size
// is 0.
struct Attention {
  bool gradient = false;
  DType dtype = DType::kBF16;
  std::int64_t batch = 1, time = 1, heads = 1, head_dim = 1;
  float scale = 1;  // of the scores; algorithms are chosen without regard to it
  // q, k and v are columns of one tensor [batch, time, 3, heads, head_dim], and so are dq, dk and
  // dv.
  bool joined = false;

  auto operator<=>(const Attention&) const = default;
  // "CausalAttention bf16 [64,256,6,64]", and " joined" if it is.
  std::string str() const;
};

struct AttentionCall {
  Attention attention;
  CudnnAlgorithm algorithm;
  // In the op's order: q, k, v -> y, logarithms of sums. For the gradient: dy, q, k, v, y,
  // logarithms of sums -> dq, dk, dv. The other places are null.
  std::array<const void*, 6> in{};
  std::array<void*, 3> out{};
  std::byte* workspace = nullptr;

  // Sets `in` and `out` to the tensors of the op.
  void take(std::span<const void* const> inputs, std::span<void* const> outputs);
};

// An LSTM or a GRU of one layer and direction, with its product with x [batch, time, features]. All
// rows are as long as `time`. No size is 0, no tensor has more than 2^31 - 1 elements.
struct Recurrence {
  enum class Cell : std::uint8_t { kLstm, kGru };

  Cell cell = Cell::kLstm;
  DType dtype = DType::kF32;
  Compute compute = Compute::kExact;
  int batch = 1, time = 1, features = 1, hidden = 1;
  std::int64_t saved_bytes = 0;  // the memory in which forward calls leave numbers for gradients

  bool has_c() const { return cell == Cell::kLstm; }
  // The elements that each gate adds up: four gates of an LSTM, three of a GRU.
  std::int64_t columns() const { return std::int64_t{has_c() ? 4 : 3} * hidden; }
  // The elements of RecurrenceTensors::weights.
  std::int64_t weights() const { return columns() * (std::int64_t{features} + hidden + 2); }

  auto operator<=>(const Recurrence&) const = default;
  // "Lstm f32 x [64,128,512] hidden 256".
  std::string str() const;
};

// What the calls of a recurrence share. A GRU has no c. `weights` has the input weights [columns,
// features], the hidden weights [columns, hidden], the biases of the input [columns] and the hidden
// biases. The order of gates is that of ops/recurrent/recurrent.h.
struct RecurrenceTensors {
  const std::int32_t* lengths;  // `time` for each row
  const void *x, *weights, *h, *c;
  void* saved;
};

struct RecurrenceCall {
  Recurrence recurrence;
  CudnnAlgorithm algorithm;
  RecurrenceTensors tensors;
  void *y, *last_h, *last_c;
  std::byte* workspace;
};

struct RecurrenceGradCall {
  Recurrence recurrence;
  CudnnAlgorithm algorithm;
  RecurrenceTensors tensors;  // the call overwrites `saved`
  const void *y, *dy, *dlast_h, *dlast_c;
  void *dx, *dh, *dc;
  void* dweights;  // the call adds to it
  std::byte* workspace;
};

}  // namespace belfry::cuda
