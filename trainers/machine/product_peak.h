// The peak arithmetic of devices, by large products of matrices.
#pragma once
#include <memory>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/ops/precision.h"

namespace belfry {

struct ProductOptions {
  std::vector<DeviceSpec> devices;
  SessionOptions session = {};
  Precision precision = Precision::kF32;
  std::int64_t size = 0;  // of N x N matrices; 0: 8192 where all devices are GPUs, else 1024
  int chain = 10;         // products in a row that a run computes on each device
};

// CPUs take smaller matrices: they are far slower, and need less work to keep all cores busy.
std::int64_t default_product_size(const std::vector<DeviceSpec>& devices);

// Multiplies matrices of normally distributed numbers, because GPUs are faster with some other
// numbers, such as zeros. Products keep the magnitude of the numbers.
class Products {
 public:
  explicit Products(const ProductOptions& options);

  void run() { step_->run(); }
  // Multiplications and additions of a run, on all devices together.
  double flops() const { return flops_; }
  // Bytes of the host's memory that a run takes.
  std::int64_t memory() const;

 private:
  Graph graph_;
  double flops_;
  std::unique_ptr<Session> session_;
  CompiledStep* step_ = nullptr;
};

// Multiplications and additions per second, by all devices together, in the fastest of a few runs.
// Takes about a second: 16-bit products of CPUs, which are slow, are of smaller matrices. Throws
// OutOfMemory if a GPU has no room.
double measure_peak(ProductOptions options);

}  // namespace belfry
