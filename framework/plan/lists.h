// Many short lists in one piece of memory.
#pragma once
#include <numeric>
#include <span>
#include <vector>

#include "belfry/framework/base/index.h"

namespace belfry {

// A list of Ts for each Of. Passes make such lists often, for very many nodes, tensors or launches
// that have few elements each, so none has memory of its own.
template <class Of, class T>
class Lists {
 public:
  Lists() = default;
  // each(f) calls f(of, element) for each element of each list; the same each time. Elements of one
  // list keep their order.
  Lists(std::size_t lists, const auto& each) : ends_(lists) {
    std::size_t elements = 0;
    each([&](Index<Of> of, const T&) { ++ends_[of], ++elements; });
    std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), std::size_t{0});
    all_.resize(elements);
    // Each end moves from where its list begins to where it ends.
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
