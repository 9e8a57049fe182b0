// Typed indices: an index of launches is never taken for an index of strands.
#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <ranges>
#include <string>
#include <vector>

namespace belfry {

// The place of an element in a list of `Of`, or none.
template <class Of>
class Index {
 public:
  constexpr Index() = default;
  constexpr explicit Index(std::integral auto value) : value_(static_cast<int>(value)) {}

  constexpr explicit operator bool() const { return value_ >= 0; }
  constexpr int value() const { return value_; }
  std::string str() const { return std::to_string(value_); }

  constexpr auto operator<=>(const Index&) const = default;
  // The next index, or the one before. Before the first comes none.
  constexpr Index& operator++() { return ++value_, *this; }
  constexpr Index& operator--() { return --value_, *this; }

 private:
  int value_ = -1;
};

// A list with one T per Of. Takes an Index<Of> or, like a list, a plain number, but no other Index.
// Bounds are not checked.
template <class Of, class T = Of>
class Indexed : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  using std::vector<T>::operator[];

  constexpr decltype(auto) operator[](Index<Of> i) {
    return std::vector<T>::operator[](static_cast<std::size_t>(i.value()));
  }
  constexpr decltype(auto) operator[](Index<Of> i) const {
    return std::vector<T>::operator[](static_cast<std::size_t>(i.value()));
  }
  // All indices, in order.
  auto indices() const {
    return std::views::iota(0, static_cast<int>(this->size())) |
           std::views::transform([](int i) { return Index<Of>(i); });
  }
  // The index that the next element will have.
  Index<Of> next() const { return Index<Of>(this->size()); }
  // Appends an element, and returns its index.
  Index<Of> add(T element) {
    this->push_back(std::move(element));
    return Index<Of>(this->size() - 1);
  }
};

}  // namespace belfry

template <class Of>
struct std::hash<belfry::Index<Of>> {
  std::size_t operator()(belfry::Index<Of> index) const {
    return static_cast<std::size_t>(index.value());
  }
};
