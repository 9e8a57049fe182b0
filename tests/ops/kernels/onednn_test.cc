#include "belfry/ops/kernels/onednn.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/sanitizers.h"

#if BELFRY_ONEDNN
extern "C" int omp_get_max_threads(void);
extern "C" void omp_set_num_threads(int);
#endif

namespace belfry {
namespace onednn_test {

TEST(OneDnn, NobodyIsInsideOutsideOfACall) { EXPECT_FALSE(inside_onednn()); }

#if BELFRY_ONEDNN
TEST(OneDnn, ACallHoldsOpenMpToOneThreadAndRestoresItsLimit) {
  omp_set_num_threads(3);
  {
    const OneDnnCall call;
    EXPECT_TRUE(inside_onednn());
    EXPECT_EQ(omp_get_max_threads(), 1);
    {
      const OneDnnCall nested;
      EXPECT_EQ(omp_get_max_threads(), 1);
    }
    EXPECT_TRUE(inside_onednn());
    EXPECT_EQ(omp_get_max_threads(), 1);
  }
  EXPECT_FALSE(inside_onednn());
  EXPECT_EQ(omp_get_max_threads(), 3);
}

// As ONEDNN_DEFAULT_FPMATH_MODE=BF16 or DNNL_DEFAULT_FPMATH_MODE=ANY would have it.
TEST(OneDnn, ComputesInFullPrecisionWhateverTheDefaultIs) {
  const dnnl::fpmath_mode before = dnnl::get_default_fpmath_mode();
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::any);
  EXPECT_EQ(onednn::user_scratchpad().get_fpmath_mode(), dnnl::fpmath_mode::strict);
  dnnl::set_default_fpmath_mode(before);
}

TEST(OneDnn, ReordersWithScratchMemoryOfTheCaller) {
  using tag = dnnl::memory::format_tag;
  const float rows[] = {1, 2, 3, 4, 5, 6};
  float columns[6] = {};
  const OneDnnCall call;
  onednn::Primitive reorder =
      onednn::reorder("transpose", onednn::dense({2, 3}, tag::ab), onednn::dense({2, 3}, tag::ba));
  std::vector<std::byte> scratch(static_cast<std::size_t>(reorder.scratch_bytes()) + 64);
  reorder.run({{DNNL_ARG_FROM, rows}, {DNNL_ARG_TO, columns}}, scratch.data());
  EXPECT_EQ(std::vector<float>(columns, columns + 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

// oneDNN has only reference code for this convolution: images and filter are in plain layouts.
dnnl::convolution_forward::primitive_desc slow_convolution() {
  using tag = dnnl::memory::format_tag;
  const dnnl::memory::dims stride{1, 1}, padding{0, 0};
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
           onednn::dense({1, 16, 8, 8}, tag::nhwc), onednn::dense({16, 16, 3, 3}, tag::ohwi),
           onednn::dense({1, 16, 6, 6}, tag::nhwc), stride, padding, padding},
          onednn::user_scratchpad(),
          onednn::engine()};
}

TEST(OneDnn, WarnsOnceOfReferenceCodeWithOpAndShapes) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1, 8, 8, 16});
  const Output filter = placeholder(graph, "filter", DType::kF32, {16, 3, 3, 16});
  const Output y = conv2d(x, filter, {.padding = Padding::kValid});
  const TensorType inputs[] = {x.type(), filter.type()}, outputs[] = {y.type()};
  const KernelPlan plan(y.node(), inputs, outputs, {0, 1});
  const auto report = [&] {
    testing::internal::CaptureStderr();
    onednn::guarded(plan, [&] {
      const auto chosen = slow_convolution();
      EXPECT_EQ(std::string(chosen.impl_info_str()).substr(0, 3), "ref");
      onednn::report(plan, chosen);
    });
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(report().find("Conv2d(f32[1,8,8,16], f32[16,3,3,16]): oneDNN has only slow reference"),
            std::string::npos);
  EXPECT_EQ(report(), "");
}

// A prepared convolution with its own memory. Convolutions of one shape share the library's
// primitive.
struct Convolution {
  explicit Convolution(const Node& node)
      : x(random_values(node.input(0).shape())),
        filter(random_values(node.input(1).shape(), -1, 1, 2)),
        y(node.output_type(0).shape, DType::kF32) {
    const TensorType inputs[] = {node.input(0).type(), node.input(1).type()};
    const TensorType outputs[] = {node.output_type(0)};
    KernelPlan plan(node, inputs, outputs, {0, y.shape()[0]});
    kernel = kConv2d.cpu(plan);
    workspace = Tensor({plan.workspace_bytes()}, DType::kU8);
  }
  void run() {
    void* const inputs[] = {x.mutable_raw(), filter.mutable_raw()};
    void* const outputs[] = {y.mutable_raw()};
    kernel(KernelPointers(inputs, outputs, workspace.mutable_raw(), {0, y.shape()[0]}, 0));
  }

  Tensor x, filter, y, workspace;
  KernelRun kernel;
};

// Runs in its own process, and leaves it only the memory that a kernel without the library takes.
[[noreturn]] void prepare_without_room(const Node& node) {
  std::ifstream sizes("/proc/self/statm");
  rlim_t pages = 0;
  sizes >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (8 << 20);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const Convolution convolution(node);
  } catch (const OutOfMemory& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

TEST(OneDnnDeathTest, ANodeWithoutRoomForItsCodeIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more memory than can be limited";
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {4, 14, 14, 16});
  const Output filter = placeholder(graph, "filter", DType::kF32, {32, 3, 3, 16});
  const Node& node = conv2d(x, filter).node();
  EXPECT_EXIT(prepare_without_room(node), testing::ExitedWithCode(0),
              "^Conv2d .*onednn_test.cc.*: there is no room for its code.*ulimit -v");
}

TEST(OneDnn, KernelsOfOneShapeRunOnSeveralThreadsAtOnce) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {4, 14, 14, 16});
  const Output filter = placeholder(graph, "filter", DType::kF32, {32, 3, 3, 16});
  const Node& node = conv2d(x, filter).node();
  Convolution alone(node);
  alone.run();
  std::vector<Convolution> several;
  for (int i = 0; i < 4; ++i) several.emplace_back(node);
  {
    std::vector<std::jthread> threads;
    for (Convolution& convolution : several)
      threads.emplace_back([&convolution] {
        for (int i = 0; i < 50; ++i) convolution.run();
      });
  }
  for (const Convolution& convolution : several) EXPECT_EQ(convolution.y, alone.y);
}
#endif

}  // namespace onednn_test
}  // namespace belfry
