#pragma once
#include <numeric>
#include <span>
#include <vector>

#include "belfry/framework/base/index.h"

namespace belfry {

// A list of Ts for each Of, all in one piece of memory. Passes often make such lists, for very many
// nodes, tensors or launches with few elements each, so separate allocations would cost too much.
template <class Of, class T>
class Lists {
 public:
  Lists() = default;
  // each(f) calls f(of, element) for each element of each list. It runs twice and must do the same
  // each time. Elements of one list keep their order.
  Lists(std::size_t lists, const auto& each) : ends_(lists) {
    std::size_t elements = 0;
    each([&](Index<Of> of, const T&) { ++ends_[of], ++elements; });
    std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), std::size_t{0});
    all_.resize(elements);
    // Each end starts at the beginning of its list, and moves to its end.
    each([&](Index<Of> of, const T& element) { all_[ends_[of]++] = element; });
  }

  std::span<const T> operator[](Index<Of> of) const {
    const std::size_t begin = of.value() == 0 ? 0 : ends_[Index<Of>(of.value() - 1)];
    return std::span(all_).subspan(begin, ends_[of] - begin);
  }
  std::size_t size() const { return ends_.size(); }
  auto indices() const { return ends_.indices(); }

 private:
  Indexed<Of, std::size_t> ends_;  // of each list, in all_
  std::vector<T> all_;
};

}  // namespace belfry
