#include "belfry/ops/kernels/stored_elements.h"

#include <algorithm>
#include <cstring>

namespace belfry::kernels {

template <class T>
void StoredElements<T>::load(const void* x, std::int64_t at, std::int64_t count, T* to) const {
  if constexpr (sizeof(T) == sizeof(float))
    if (half_) return half_->widen(static_cast<const std::uint16_t*>(x) + at, to, count);
  std::memcpy(to, static_cast<const T*>(x) + at, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void StoredElements<T>::store(const T* from, std::int64_t count, void* x, std::int64_t at) const {
  if constexpr (sizeof(T) == sizeof(float))
    if (half_) return half_->narrow(from, static_cast<std::uint16_t*>(x) + at, count);
  std::memcpy(static_cast<T*>(x) + at, from, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void StoredElements<T>::round(T* x, std::int64_t count) const {
  constexpr std::int64_t kRow = 1024;
  std::uint16_t row[kRow];
  if (!half_) return;
  for (std::int64_t i = 0; i < count; i += kRow) {
    const std::int64_t n = std::min(kRow, count - i);
    store(x + i, n, row, 0);
    load(row, 0, n, x + i);
  }
}

template class StoredElements<float>;
template class StoredElements<double>;

}  // namespace belfry::kernels
