#include "belfry/tests/bench/op_values/op_cases.h"

#include "belfry/framework/kernels/half.h"

namespace belfry::bench {

int Random::integer(int low, int high) {
  const auto count = static_cast<std::uint64_t>(high - low + 1);
  return low + static_cast<int>((bits_() >> 33) % count);
}

Shape Random::shape(int least_rank, int most_rank) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(integer(least_rank, most_rank)));
  for (std::int64_t& dim : dims) dim = integer(1, 5);
  return Shape(std::move(dims));
}

Tensor Random::values(const Shape& shape, double low, double high) {
  Tensor tensor(shape, DType::kF64);
  for (double& value : tensor.mutable_data<double>())
    value = static_cast<float>(low + (high - low) * integer(0, (1 << 20) - 1) * 0x1p-20);
  return tensor;
}

Tensor Random::integers(const Shape& shape, int low, int high, DType dtype) {
  Tensor tensor(shape, dtype);
  const auto fill = [&]<class T>(T) {
    for (T& value : tensor.mutable_data<T>()) value = integer(low, high);
  };
  dtype == DType::kI64 ? fill(std::int64_t{}) : fill(std::int32_t{});
  return tensor;
}

}  // namespace belfry::bench
