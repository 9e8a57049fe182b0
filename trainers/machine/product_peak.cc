#include "belfry/trainers/machine/product_peak.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/matmul.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

DType type_of_products(Precision precision) {
  if (precision == Precision::kF16) return DType::kF16;
  return precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
}

// CPUs multiply 16-bit numbers a hundred times slower than f32, so small matrices come first.
std::int64_t first_size(const ProductOptions& options) {
  constexpr std::int64_t kSmall = 64;
  const bool is_slow = type_of_products(options.precision) != DType::kF32 &&
                       !std::ranges::all_of(options.devices, &DeviceSpec::is_gpu);
  return is_slow ? kSmall : default_product_size(options.devices);
}

double seconds_of_run(Products& products) {
  const double start = seconds_now();
  products.run();
  return seconds_now() - start;
}

}  // namespace

std::int64_t default_product_size(const std::vector<DeviceSpec>& devices) {
  return std::ranges::all_of(devices, &DeviceSpec::is_gpu) ? 8192 : 1024;
}

Products::Products(const ProductOptions& options) {
  const std::int64_t n = options.size > 0 ? options.size : default_product_size(options.devices);
  const auto size = static_cast<double>(n);
  flops_ = 2 * size * size * size * options.chain * static_cast<double>(options.devices.size());
  std::vector<Node*> last;
  for (const DeviceSpec& device : options.devices) {
    const DeviceScope on(graph_, device);
    const AutocastScope scope(graph_, autocasting(options.precision));
    // A cast in the step would be timed with the products.
    const auto matrix = [&](const char* name, double deviation) -> Output {
      const Initializer normal = [=](Graph& graph, const Shape& shape, DType dtype) {
        return cast(init::normal(deviation)(graph, shape, DType::kF32), dtype);
      };
      return variable(graph_, cat(name, last.size()), {n, n},
                      {.dtype = type_of_products(options.precision),
                       .initializer = normal,
                       .trainable = false});
    };
    Output product = matrix("a", 1);
    const Output factor = matrix("b", 1 / std::sqrt(size));
    for (int i = 0; i < options.chain; ++i) product = matmul(product, factor);
    last.push_back(&product.node());
  }
  session_ = std::make_unique<Session>(graph_, options.session);
  step_ = &session_->prepare({group(graph_, last)});
}

std::int64_t Products::memory() const { return host_bytes(session_->device_use()); }

double measure_peak(ProductOptions options) {
  constexpr int kMoreRuns = 2;
  constexpr double kLongEnough = 0.05;  // seconds of a run
  const Busy busy("measuring the peak of products");
  options.chain = 4;
  options.session.device_count = device_count(options.devices);
  const std::int64_t most = options.size > 0 ? options.size : default_product_size(options.devices);
  if (options.size == 0) options.size = first_size(options);
  for (;; options.size = std::min(most, 2 * options.size)) {
    Products products(options);
    products.run();  // allocates
    double best = seconds_of_run(products);
    if (best < kLongEnough && options.size < most) continue;
    for (int run = 0; run < kMoreRuns; ++run) best = std::min(best, seconds_of_run(products));
    return products.flops() / best;
  }
}

}  // namespace belfry
