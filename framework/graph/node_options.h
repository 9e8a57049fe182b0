// Options of a node: one plain struct per op, held by value and type-erased. Printing and equality
// derive from the struct's fields, so an op states them once.
#pragma once
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "belfry/framework/base/error.h"

namespace belfry {

namespace detail {

struct AnyField {
  template <class T>
  operator T() const;  // NOLINT: only named in unevaluated operands
};

template <class T, class... Fields>
constexpr std::size_t count_fields() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; })
    return count_fields<T, Fields..., AnyField>();
  else
    return sizeof...(Fields);
}

// Calls visit(field) for every field of an aggregate with up to six fields.
template <class T, class Visit>
void for_each_field(const T& value, const Visit& visit) {
  constexpr std::size_t kFields = count_fields<T>();
  static_assert(kFields <= 6, "an options struct has at most six fields");
  if constexpr (kFields == 1) {
    const auto& [a] = value;
    visit(a);
  } else if constexpr (kFields == 2) {
    const auto& [a, b] = value;
    visit(a), visit(b);
  } else if constexpr (kFields == 3) {
    const auto& [a, b, c] = value;
    visit(a), visit(b), visit(c);
  } else if constexpr (kFields == 4) {
    const auto& [a, b, c, d] = value;
    visit(a), visit(b), visit(c), visit(d);
  } else if constexpr (kFields == 5) {
    const auto& [a, b, c, d, e] = value;
    visit(a), visit(b), visit(c), visit(d), visit(e);
  } else if constexpr (kFields == 6) {
    const auto& [a, b, c, d, e, f] = value;
    visit(a), visit(b), visit(c), visit(d), visit(e), visit(f);
  }
}

template <class T>
void print_field(std::string& out, const T& field) {
  if constexpr (std::is_enum_v<T>) {
    append_text(out, static_cast<int>(field));
  } else if constexpr (
      requires { append_text(out, field); } && !requires { field.begin(); }) {
    append_text(out, field);
  } else if constexpr (requires { std::string_view(field); }) {
    append_text(out, field);
  } else {
    out += '[';
    for (std::size_t i = 0; i < field.size(); ++i) {
      if (i > 0) out += ',';
      append_text(out, field[i]);
    }
    out += ']';
  }
}

template <class F>
concept IsPlace = requires {
  F::kIsPlace;
};

}  // namespace detail

// Immutable; copies share the struct. Empty for ops without options.
class NodeOptions {
 public:
  NodeOptions() = default;

  template <class T>
  requires(!std::same_as<T, NodeOptions>) explicit NodeOptions(T value)
      : value_(std::make_shared<const T>(std::move(value))),
        type_(&typeid(T)),
        fields_(fields_of<T>) {}

  // Throws InternalError if the options are of another type.
  template <class T>
  const T& as() const {
    detail::require<InternalError>(type_ && *type_ == typeid(T), "options read as another type");
    return *static_cast<const T*>(value_.get());
  }

  struct Field {
    std::string text;
    // Whether it says where in a tensor the node works (kIsPlace of its type), not what it
    // computes.
    bool is_place;
  };
  // In order; none without options.
  std::vector<Field> fields() const {
    return value_ ? fields_(value_.get()) : std::vector<Field>();
  }

  // "{1,0,[2,3]}": the fields in order, "" without options. Tensors print as their shape, so two
  // options are equal when type and text are, constants excepted.
  std::string str() const { return value_ ? text_of(fields()) : std::string(); }
  static std::string text_of(const std::vector<Field>& fields) {
    std::string out = "{";
    for (const Field& field : fields) {
      if (out.size() > 1) out += ',';
      out += field.text;
    }
    return out + "}";
  }

 private:
  template <class T>
  static std::vector<Field> fields_of(const void* value) {
    std::vector<Field> fields;
    detail::for_each_field(*static_cast<const T*>(value), [&]<class F>(const F& field) {
      detail::print_field(fields.emplace_back(Field{"", detail::IsPlace<F>}).text, field);
    });
    return fields;
  }

  std::shared_ptr<const void> value_;
  const std::type_info* type_ = nullptr;
  std::vector<Field> (*fields_)(const void*) = nullptr;
};

}  // namespace belfry
