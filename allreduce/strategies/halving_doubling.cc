// halving_doubling: pairs of towers exchange halves, at distances 1, 2, 4, ... and back.
#include <bit>

#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// A tower's part of the sum: some elements of the flat tensor. An empty part has no value.
struct Part {
  Output value;
  std::int64_t size = 0;
};

// With P the largest power of two up to K: towers P, P + 1, ... first send their tensors to towers
// 0, 1, ..., which add them (own + theirs). Then, at distances 1, 2, ..., P / 2, towers t and t ^
// distance halve the range of elements that they share. The lower tower sums the first half (longer
// by one if the length is odd), the other one the second, each as lower + upper tower's. Finished
// parts, divided for a mean, return the same way and are joined at every step. Finally towers P,
// ... take the whole from their partners.
//
// Canonical at powers of two, where the pairs are the nodes of the tree. Works for any K and shape;
// tf_cnn_benchmarks' rechd takes only powers of two, and only lengths that they divide. Throws
// InvalidArgument if the shape of a gradient is not fully known.
class PairExchange {
 public:
  PairExchange(const GradientTable& grads, int v)
      : grads_(grads), v_(v), members_(std::bit_floor(static_cast<std::size_t>(grads.towers()))) {}

  std::vector<Output> run(Reduction reduction) {
    fold();
    for (std::size_t distance = 1; distance < members_; distance *= 2) halve(distance);
    if (reduction == Reduction::kMean) divide();
    for (std::size_t distance = members_ / 2; distance > 0; distance /= 2) join(distance);
    return results();
  }

 private:
  DeviceScope on(std::size_t t) const {
    return {grads_.graph(), grads_.device(static_cast<int>(t))};
  }
  const Output& gradient(std::size_t t) const { return grads_.at(static_cast<int>(t), v_).value; }

  void fold() {
    const std::int64_t elements = known_elements(grads_, v_, "halving_doubling all-reduce");
    for (std::size_t t = 0; t < members_; ++t) {
      const DeviceScope here = on(t);
      const std::size_t other = t + members_;
      const bool alone = other >= static_cast<std::size_t>(grads_.towers());
      const Output total = alone ? gradient(t) : add_n({gradient(t), gradient(other)});
      parts_.push_back({flat_row(total), elements});
    }
  }

  // The lower or upper half of the owner's part, to send or to keep. It is sliced on the owner's
  // device.
  Part half(std::size_t owner, bool upper) const {
    const Part& part = parts_[owner];
    const std::int64_t lower_size = (part.size + 1) / 2;
    const std::int64_t size = upper ? part.size - lower_size : lower_size;
    if (size == 0) return {};
    const DeviceScope here = on(owner);
    return {piece_of(part.value, upper ? lower_size : 0, size), size};
  }

  void halve(std::size_t distance) {
    std::vector<Part> next(members_);
    for (std::size_t t = 0; t < members_; ++t) {
      const bool upper = (t & distance) != 0;
      const Part left = half(t & ~distance, upper), right = half(t | distance, upper);
      if (left.size == 0) continue;
      const DeviceScope here = on(t);
      next[t] = {add_n({left.value, right.value}), left.size};
    }
    parts_ = std::move(next);
  }

  void divide() {
    for (std::size_t t = 0; t < members_; ++t) {
      if (parts_[t].size == 0) continue;
      const DeviceScope here = on(t);
      parts_[t].value = parts_[t].value / grads_.towers();
    }
  }

  void join(std::size_t distance) {
    std::vector<Part> next(members_);
    for (std::size_t t = 0; t < members_; ++t) {
      const DeviceScope here = on(t);
      std::vector<Output> rows;
      for (const std::size_t from : {t & ~distance, t | distance}) {
        if (parts_[from].size > 0) rows.push_back(parts_[from].value);
        next[t].size += parts_[from].size;
      }
      if (!rows.empty()) next[t].value = rows.size() == 1 ? identity(rows[0]) : join_flat(rows);
    }
    parts_ = std::move(next);
  }

  std::vector<Output> results() const {
    std::vector<Output> results;
    for (std::size_t t = 0; t < members_; ++t) {
      const DeviceScope here = on(t);
      results.push_back(reshape(parts_[t].value, gradient(0).shape()));
    }
    for (auto t = members_; t < static_cast<std::size_t>(grads_.towers()); ++t) {
      const DeviceScope here = on(t);
      results.push_back(identity(results[t - members_]));
    }
    return results;
  }

  const GradientTable& grads_;
  int v_;
  std::size_t members_;  // a power of two
  std::vector<Part> parts_;
};

class HalvingDoubling final : public Strategy {
 public:
  bool canonical(int towers) const override {
    return towers >= 1 && std::has_single_bit(static_cast<unsigned>(towers));
  }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    NameScope names(grads.graph(), "AllReduceHalvingDoubling");
    return by_variable(grads, [&](int v) {
      const bool empty = known_elements(grads, v, "halving_doubling all-reduce") == 0;
      return empty ? grads.values(v)
                   : PairExchange(grads, v).run(reduction);  // empty: nothing to add
    });
  }
};

const StrategyRegistration halving_doubling{"halving_doubling",
                                            [] { return std::make_unique<HalvingDoubling>(); }};
const StrategyAlias rechd{"rechd", "halving_doubling"};

}  // namespace

}  // namespace belfry
