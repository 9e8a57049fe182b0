#include "belfry/framework/core_ops/received_sum.h"

#include <cstdint>
#include <utility>

#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

template <class T>
void add(const ReceivedSum& row, std::size_t from, std::span<const std::byte> some) {
  const void* terms[] = {row.own.data() + from, some.data()};
  if (!row.own_first) std::swap(terms[0], terms[1]);
  void* const sum[] = {row.sum.data() + from};
  const auto size = static_cast<std::int64_t>(some.size() / sizeof(T));
  if (row.divisor == 1) return kernels::tree_sum<T>(terms, sum, 0, size);
  kernels::tree_mean<T>(terms, sum, static_cast<T>(row.divisor), 0, size);
}

}  // namespace

void ReceivedSum::operator()(std::size_t from, std::span<const std::byte> some) const {
  dtype == DType::kF32 ? add<float>(*this, from, some) : add<double>(*this, from, some);
}

}  // namespace belfry
