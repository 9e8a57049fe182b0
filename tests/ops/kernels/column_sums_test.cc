#include "belfry/ops/kernels/column_sums.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace column_sums_test {

// Covers a part of a block, several blocks, and blocks that one row fills.
TEST(ColumnSums, OfBlocksAreThoseOfAllRows) {
  for (const std::int64_t columns : {2, 9, 100, 9000})
    for (const std::int64_t rows : {0, 1, 7, 90, 1000, 5000}) {
      if (rows * columns > 1'000'000) continue;
      std::vector<float> values(static_cast<std::size_t>(rows * columns)), made(values.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 7919 % 1013) / 97 - 5;
      const auto make = [&](std::int64_t begin, std::int64_t end) {
        std::copy(values.begin() + begin * columns, values.begin() + end * columns,
                  made.begin() + begin * columns);
      };
      const auto width = static_cast<std::size_t>(columns);
      std::vector<float> expected(width), sums(width),
          scratch(static_cast<std::size_t>(kernels::column_sums_scratch(rows, columns)));
      kernels::column_sums(values.data(), rows, columns, expected.data(), 0, columns);
      kernels::column_sums_by_blocks(made.data(), rows, columns, make, sums.data(), scratch.data());
      EXPECT_EQ(sums, expected) << rows << " x " << columns;
    }
}

}  // namespace column_sums_test
}  // namespace belfry
