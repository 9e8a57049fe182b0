#include "belfry/ops/kernels/reduction.h"

#include <cstring>

#include "belfry/framework/kernels/reduce.h"

namespace belfry {

Reduction::Reduction(const Shape& x, const std::vector<bool>& reduced) {
  // Neighbouring dimensions that are all reduced, or all kept, are merged, so both kinds alternate.
  struct Group {
    std::int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    if (!reduced[axis]) size_ *= x[axis];
    if (!groups.empty() && groups.back().reduced == reduced[axis])
      groups.back().size *= x[axis];
    else
      groups.push_back({x[axis], reduced[axis]});
  }
  if (x.rank() > 0 && !reduced[0]) rows_ = x[0];
  // The last reduced group goes first: its rows are dense.
  while (true) {
    std::size_t last = groups.size();
    while (last > 0 && !groups[last - 1].reduced) --last;
    if (last == 0) break;
    Step step{1, groups[last - 1].size, last < groups.size() ? groups[last].size : 1, workspace_};
    for (std::size_t i = 0; i + 1 < last; ++i) step.outer *= groups[i].size;
    steps_.push_back(step);
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(last) - 1);
    if (last >= 2 && last - 1 < groups.size()) {
      groups[last - 2].size *= groups[last - 1].size;
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(last) - 1);
    }
    workspace_ += step.outer * step.inner;
  }
  // The last result is the output.
  if (!steps_.empty()) workspace_ = steps_.back().to;
}

template <class T>
void Reduction::operator()(const T* x, T* y, T* scratch, std::int64_t begin,
                           std::int64_t end) const {
  if (steps_.empty()) {
    const std::int64_t row = rows_ == 0 ? 0 : size_ / rows_;
    const std::int64_t elements = (end - begin) * row;
    if (elements > 0)
      std::memcpy(y + begin * row, x + begin * row, static_cast<std::size_t>(elements) * sizeof(T));
    return;
  }
  for (const Step& step : steps_) {
    const bool last = &step == &steps_.back();
    T* const to = last ? y : scratch + step.to;
    const std::int64_t per_row = rows_ == 0 ? 0 : step.outer / rows_;
    const std::int64_t from = begin * per_row, until = end * per_row;
    if (step.inner == 1) {
      kernels::row_sums(x, step.reduced, to, from, until);
    } else {
      for (std::int64_t o = from; o < until; ++o)
        kernels::column_sums(x + o * step.reduced * step.inner, step.reduced, step.inner,
                             to + o * step.inner, 0, step.inner);
    }
    x = to;
  }
}

template void Reduction::operator()(const float*, float*, float*, std::int64_t, std::int64_t) const;
template void Reduction::operator()(const double*, double*, double*, std::int64_t,
                                    std::int64_t) const;

}  // namespace belfry
