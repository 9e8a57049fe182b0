// Faster ways of kernels that give the same bits as plain ones, but for padded rows
// (runtime/driving_backend.cc), for which cuBLASLt may choose another algorithm:
//
//   const Variant mask_from_x("batch_norm.mask_from_x");
//   if (mask_from_x.on()) ...  // when a kernel is prepared or enqueued
//
// All are on. A file of algorithms (algorithm_table.h) can switch each off by its key, to measure
// what it saves on a GPU.
#pragma once
#include <atomic>
#include <map>
#include <string>

namespace belfry::cuda {

// Lives as long as the module. Its functions may be called from several threads.
class Variant {
 public:
  explicit Variant(const char* key);
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
  bool on() const { return on_; }

  // All of them, by key, and whether they are on.
  static std::map<std::string, bool> all();
  // All others are on from then on. Throws InvalidArgument naming the keys that exist, and then
  // changes none.
  static void set(const std::map<std::string, bool>& choices);

 private:
  mutable std::atomic<bool> on_ = true;
};

}  // namespace belfry::cuda
