#include "belfry/tests/recorder/counting_queue.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>

#include <cxxabi.h>

#include "belfry/framework/base/require.h"
#include "belfry/tests/recorder/recorder.h"

namespace belfry::recorder {
namespace {

// Of each launch: the first, the middle and the last one. So up to three tensors of equal size in a
// launch are all found.
constexpr std::int64_t kBlocksRun = 3;

// "RowTree MomentLeaf" for run_several_blocks<belfry::cuda::RowTree<...::MomentLeaf<float, 4>>>.
std::string kernel_name(const void* function) {
  const std::string& mangled = recorder().kernels.at(function);
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  const std::string whole = demangled ? demangled : mangled;
  std::free(demangled);
  std::string name;
  std::size_t at = whole.find('<');
  for (int depth = 0; depth < 2 && at != whole.npos; ++depth) {
    const std::size_t end = whole.find_first_of("<>,", at + 1);
    if (end == whole.npos) break;
    const std::string part = whole.substr(at + 1, end - at - 1);
    const std::size_t colons = part.rfind("::");
    if (depth > 0 && colons == part.npos) break;  // no kernel's name: "float"
    name += (depth > 0 ? " " : "") + part.substr(colons == part.npos ? 0 : colons + 2);
    at = whole[end] == '<' ? end : whole.npos;
  }
  return name;
}

template <class Sizes>
std::int64_t bytes_of(const Sizes& sizes, DType dtype) {
  return std::accumulate(sizes.begin(), sizes.end(), static_cast<std::int64_t>(size_of(dtype)),
                         std::multiplies<>());
}

// All matrices of a batch, or one that all of them share.
std::int64_t bytes_of(const cuda::ColumnMajor& matrix, std::int64_t count, DType dtype) {
  return (matrix.step == 0 ? 1 : count) * matrix.rows * matrix.columns *
         static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

void CountingQueue::launch(const cuda::KernelLaunch& launch) {
  const std::int64_t last = launch.grid.blocks - 1, run = std::min(launch.grid.blocks, kBlocksRun);
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(run));
  for (std::int64_t i = 0; i < run; ++i)
    blocks[static_cast<std::size_t>(i)] = run == 1 ? 0 : last * i / (run - 1);
  launch.on_host(launch.kernel, {run, launch.grid.threads}, {.blocks = blocks.data()});
  launches_.push_back({kernel_name(launch.function), memory_.take()});
}

void CountingQueue::matmul(const cuda::MatMulCall& call) {
  const cuda::MatMul& m = products_.emplace_back(call.matmul);
  const std::int64_t c = bytes_of(m.c, m.count, m.wide ? DType::kF32 : m.dtype);
  launches_.push_back({"cublasLtMatmul",
                       {.read = bytes_of(m.a, m.count, m.dtype) + bytes_of(m.b, m.count, m.dtype) +
                                (m.added ? c : 0),
                        .written = c}});
}

void CountingQueue::convolve(const cuda::ConvolutionCall& call) {
  const cuda::Convolution& of = call.convolution;
  const std::int64_t x = bytes_of(of.x, of.dtype), y = bytes_of(of.y, of.dtype),
                     filter = bytes_of(of.filter, of.dtype), all = x + y + filter;
  const std::int64_t out = of.kind == cuda::Convolution::Kind::kForward     ? y
                           : of.kind == cuda::Convolution::Kind::kGradInput ? x
                                                                            : filter;
  launches_.push_back({"cudnnConvolution", {.read = all - out, .written = out}});
}

void CountingQueue::pool(const cuda::PoolingCall& call) {
  const cuda::Pooling& of = call.pooling;
  const std::int64_t x = bytes_of(of.x, of.dtype), y = bytes_of(of.y, of.dtype);
  launches_.push_back(
      {"cudnnPooling", {.read = of.gradient ? y : x, .written = of.gradient ? x : y}});
}

void CountingQueue::attend(const cuda::AttentionCall& call) {
  const cuda::Attention& of = call.attention;
  const std::int64_t rows = of.batch * of.time * of.heads;
  const std::int64_t tensor = rows * of.head_dim * static_cast<std::int64_t>(size_of(of.dtype));
  const std::int64_t sums = rows * static_cast<std::int64_t>(sizeof(float));
  launches_.push_back({"cudnnBackendExecute",
                       of.gradient ? Touched{.read = 5 * tensor + sums, .written = 3 * tensor}
                                   : Touched{.read = 3 * tensor, .written = tensor + sums}});
}

void CountingQueue::recur(const cuda::RecurrenceCall&) {
  throw InternalError("recurrences are not counted");
}
void CountingQueue::recur_back(const cuda::RecurrenceGradCall&) {
  throw InternalError("recurrences are not counted");
}

}  // namespace belfry::recorder
