#include "belfry/ops/kernels/onednn.h"

#include <gtest/gtest.h>

#if BELFRY_ONEDNN
extern "C" int omp_get_max_threads(void);
extern "C" void omp_set_num_threads(int);
#endif

namespace belfry {
namespace {

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

TEST(OneDnn, ReordersWithScratchMemoryOfTheCaller) {
  using tag = dnnl::memory::format_tag;
  const float rows[] = {1, 2, 3, 4, 5, 6};
  float columns[6] = {};
  const OneDnnCall call;
  onednn::Primitive reorder =
      onednn::reorder(onednn::dense({2, 3}, tag::ab), onednn::dense({2, 3}, tag::ba));
  std::vector<std::byte> scratch(static_cast<std::size_t>(reorder.scratch_bytes()) + 64);
  reorder.run({{DNNL_ARG_FROM, rows}, {DNNL_ARG_TO, columns}}, scratch.data());
  EXPECT_EQ(std::vector<float>(columns, columns + 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}
#endif

}  // namespace
}  // namespace belfry
