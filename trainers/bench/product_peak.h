// The most arithmetic that devices do: large products of matrices.
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

// CPUs are far slower, and a matrix of theirs need not keep thousands of cores busy.
std::int64_t default_product_size(const std::vector<DeviceSpec>& devices);

// Matrices of normal numbers, which GPUs do not multiply faster than others: each product keeps
// their size.
class Products {
 public:
  explicit Products(const ProductOptions& options);

  void run() { step_->run(); }
  // Multiplications and additions of a run, on all devices together.
  double flops() const { return flops_; }
  // Bytes of the host that a run takes.
  std::int64_t memory() const;

 private:
  Graph graph_;
  double flops_;
  std::unique_ptr<Session> session_;
  CompiledStep* step_ = nullptr;
};

// Multiplications and additions a second, by all devices together: the fastest of a few runs, which
// take a second or so. Throws OutOfMemory where a GPU has no room.
double measure_peak(ProductOptions options);

}  // namespace belfry
