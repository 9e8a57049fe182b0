#include "belfry/ops/kernels/stored_elements.h"

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

template class StoredElements<float>;
template class StoredElements<double>;

}  // namespace belfry::kernels
