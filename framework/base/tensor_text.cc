// Tensor::str(): the notation of numpy 1.14 and later, with its default options.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "belfry/framework/base/tensor.h"

namespace belfry {
namespace {

constexpr std::size_t kPrecision = 8;  // digits after the point
constexpr std::int64_t kMost = 1000;   // elements of a tensor that is printed whole
constexpr std::int64_t kEdge = 3;      // shown at each end of a long axis
constexpr std::size_t kLineWidth = 75;

// The parts of "12.5e-03"; the exponent is "" if there is none.
struct Number {
  std::string whole, fraction, exponent;
};

Number parts_of(std::string_view text) {
  Number number;
  const std::size_t e = std::min(text.find('e'), text.size());
  const std::size_t point = std::min(text.find('.'), e);
  number.whole = text.substr(0, point);
  if (point < e) number.fraction = text.substr(point + 1, e - point - 1);
  if (e < text.size()) number.exponent = text.substr(e);
  return number;
}

template <class T>
Number exact_digits(T value, std::size_t fraction, bool scientific) {
  char text[400];
  const int length = std::snprintf(text, sizeof text, scientific ? "%.*e" : "%.*f",
                                   static_cast<int>(fraction), static_cast<double>(value));
  return parts_of({text, static_cast<std::size_t>(length)});
}

// The shortest digits that read back to the same value, but no more than kPrecision after the
// point.
template <class T>
Number digits_of(T value, bool scientific) {
  char text[400];
  const auto form = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  char* const end = std::to_chars(text, text + sizeof text, value, form).ptr;
  Number number = parts_of({text, end});
  if (number.fraction.size() <= kPrecision) return number;
  number = exact_digits(value, kPrecision, scientific);
  number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
  return number;
}

// A single number: 1.0, 0.5, 1e-05.
template <class T>
std::string scalar_text(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(static_cast<double>(value));
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  char text[400];
  const auto form = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  std::string result(text, std::to_chars(text, text + sizeof text, value, form).ptr);
  if (!scientific && result.find('.') == result.npos) result += ".0";
  return result;
}

// One form for all floating-point elements shown, so that their points are in one column.
template <class T>
std::vector<std::string> float_texts(const std::vector<T>& values) {
  double largest = 0, smallest = INFINITY;
  for (const T value : values) {
    const double size = std::abs(static_cast<double>(value));
    if (!std::isfinite(size) || size == 0) continue;
    largest = std::max(largest, size);
    smallest = std::min(smallest, size);
  }
  const bool scientific =
      largest > 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
  std::vector<Number> numbers;
  std::size_t left = 0, right = 0, exponent = 0;
  for (const T value : values) {
    numbers.push_back(std::isfinite(value) ? digits_of(value, scientific) : Number{});
    left = std::max(left, numbers.back().whole.size());
    right = std::max(right, numbers.back().fraction.size());
    exponent = std::max(exponent, numbers.back().exponent.size());
  }
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string text = scalar_text(values[i]);
    if (std::isfinite(values[i])) {
      if (scientific && numbers[i].fraction.size() < right)  // more digits, not zeros
        numbers[i] = exact_digits(values[i], right, true);
      Number& number = numbers[i];
      if (scientific) number.exponent.insert(2, exponent - number.exponent.size(), '0');
      number.fraction.resize(right, ' ');
      text = std::string(left - number.whole.size(), ' ') + number.whole + '.' + number.fraction +
             number.exponent;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

// The elements `shown` as texts of equal width.
std::vector<std::string> element_texts(const Tensor& tensor,
                                       const std::vector<std::int64_t>& shown) {
  std::vector<std::string> texts = visit_any(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto data = tensor.data<T>();
    std::vector<std::string> result;
    if constexpr (std::is_floating_point_v<T>) {
      std::vector<T> values;
      for (const std::int64_t i : shown) values.push_back(data[static_cast<std::size_t>(i)]);
      result = float_texts(values);
    } else {
      for (const std::int64_t i : shown) {
        const T value = data[static_cast<std::size_t>(i)];
        if constexpr (std::is_same_v<T, bool>)
          result.push_back(value ? " True" : "False");
        else
          result.push_back(std::to_string(value));
      }
    }
    return result;
  });
  std::size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

class Printer {
 public:
  explicit Printer(const Tensor& tensor)
      : shape_(tensor.shape()), summary_(shape_.elements() > kMost) {
    find_shown(0, 0);
    texts_ = element_texts(tensor, shown_);
  }

  // The text of the axes from `axis` on; `width` characters fit on a line.
  std::string axis_text(std::size_t axis, std::size_t width) {
    const std::string indent(axis + 1, ' ');
    return axis + 1 == shape_.rank() ? row_text(indent, width - 1)
                                     : block_text(axis, indent, width - 1);
  }

 private:
  bool elided(std::int64_t size) const { return summary_ && size > 2 * kEdge; }

  void find_shown(std::size_t axis, std::int64_t offset) {
    if (axis == shape_.rank()) return shown_.push_back(offset);
    const std::int64_t size = shape_[axis], stride = shape_.product(axis + 1, shape_.rank());
    for (std::int64_t i = 0; i < size; ++i) {
      if (elided(size) && i == kEdge) i = size - kEdge;
      find_shown(axis + 1, offset + i * stride);
    }
  }

  std::string row_text(const std::string& indent, std::size_t width) {
    const std::int64_t size = shape_.back(), count = elided(size) ? 2 * kEdge : size;
    std::string text, line = indent;
    const auto add = [&](const std::string& word) {
      if (line.size() > indent.size() && line.size() + word.size() > width) {
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        line = indent;
      }
      line += word + " ";
    };
    for (std::int64_t i = 0; i < count; ++i) {
      if (elided(size) && i == kEdge) add("...");
      add(texts_[next_++]);
    }
    if (count > 0) line.pop_back();
    return "[" + (text + line).substr(indent.size()) + "]";
  }

  std::string block_text(std::size_t axis, const std::string& indent, std::size_t width) {
    const std::int64_t size = shape_[axis], count = elided(size) ? 2 * kEdge : size;
    const std::string end(shape_.rank() - axis - 1, '\n');
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) {
      if (i > 0) text += end + indent;
      if (elided(size) && i == kEdge) text += "..." + end + indent;
      text += axis_text(axis + 1, width);
    }
    return "[" + text + "]";
  }

  const Shape& shape_;
  const bool summary_;
  std::vector<std::int64_t> shown_;  // offsets of the elements that are not elided
  std::vector<std::string> texts_;   // texts of these elements
  std::size_t next_ = 0;
};

float wide(std::uint16_t half, DType dtype) {
  if (dtype == DType::kBF16) return std::bit_cast<float>(std::uint32_t{half} << 16);
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float size = exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                     : exponent == 0
                         ? std::ldexp(static_cast<float>(fraction), -24)
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return half >> 15 ? -size : size;
}

Tensor in_f32(const Tensor& halves) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(halves.elements()));
  std::memcpy(bits.data(), halves.raw(), halves.bytes());
  std::vector<float> values;
  for (const std::uint16_t each : bits) values.push_back(wide(each, halves.dtype()));
  return Tensor(halves.shape(), values);
}

}  // namespace

std::string Tensor::str() const {
  if (elements_ == 0) return "[]";
  if (is_half(dtype_)) return in_f32(*this).str();
  if (shape_.rank() > 0) return Printer(*this).axis_text(0, kLineWidth);
  return visit_any(dtype_, [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T value = data<T>()[0];
    if constexpr (std::is_same_v<T, bool>)
      return value ? "True" : "False";
    else if constexpr (std::is_floating_point_v<T>)
      return scalar_text(value);
    else
      return std::to_string(value);
  });
}

}  // namespace belfry
