#include "belfry/ops/shapes/einsum.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

bool has_letter(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// The letters for which `keep` holds, in their order.
template <class Keep>
std::string letters_where(const std::string& letters, const Keep& keep) {
  std::string result;
  std::ranges::copy_if(letters, std::back_inserter(result), keep);
  return result;
}

// A tensor and the letters of its axes.
struct LetteredTensor {
  Output x;
  std::string letters;

  std::int64_t size(char letter) const { return x.shape()[letters.find(letter)]; }
};

// An equation, with a list of letters per operand, and those of the result.
struct EinsumEquation {
  std::vector<std::string> operands;
  std::string result;
};

template <class... Parts>
void require_einsum(bool condition, std::string_view equation, At at, const Parts&... parts) {
  require(condition, "einsum \"", equation, "\" (", at.site, "): ", parts...);
}

EinsumEquation parsed_equation(std::string_view equation, At at) {
  std::string text = letters_where(std::string(equation), [](char c) { return c != ' '; });
  require_einsum(!has_letter(text, '.'), equation, at,
                 "has no support for \"...\"; name each axis by a letter");
  const std::size_t arrow = text.find("->");
  EinsumEquation result{.operands = {""}};
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') {
      result.operands.emplace_back();
      continue;
    }
    require_einsum((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), equation, at, "'", c,
                   "' is no letter");
    require_einsum(!has_letter(result.operands.back(), c), equation, at, "operand ",
                   result.operands.size() - 1, " has '", c, "' twice; diagonals are not supported");
    result.operands.back() += c;
  }
  if (arrow != std::string::npos) {
    result.result = text.substr(arrow + 2);
    return result;
  }
  std::map<char, int> counts;
  for (const std::string& operand : result.operands)
    for (const char c : operand) ++counts[c];
  for (const auto& [letter, count] : counts)
    if (count == 1) result.result += letter;
  return result;
}

void check_operands(const EinsumEquation& parts, std::string_view equation,
                    std::span<const Output> operands, At at) {
  require_einsum(parts.operands.size() == operands.size(), equation, at, "names ",
                 parts.operands.size(), " operands, but there are ", operands.size());
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i].shape();
    require_einsum(shape.rank() == parts.operands[i].size(), equation, at, "operand ", i, " is ",
                   operands[i].type(), ", but '", parts.operands[i], "' names ",
                   parts.operands[i].size(), " axes");
    for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
      const char letter = parts.operands[i][axis];
      std::int64_t& size = sizes.try_emplace(letter, kUnknownSize).first->second;
      require_einsum(size == kUnknownSize || shape[axis] == kUnknownSize || size == shape[axis],
                     equation, at, "'", letter, "' has sizes ", size, " and ", shape[axis]);
      if (size == kUnknownSize) size = shape[axis];
    }
  }
  for (std::size_t i = 0; i < parts.result.size(); ++i) {
    const char letter = parts.result[i];
    require_einsum(sizes.contains(letter), equation, at, "no operand has the '", letter,
                   "' of the result");
    require_einsum(parts.result.find(letter) == i, equation, at, "the result has '", letter,
                   "' twice");
  }
}

LetteredTensor in_order(const LetteredTensor& of, const std::string& letters) {
  if (of.letters == letters) return of;
  std::vector<int> order;
  for (const char letter : letters) order.push_back(static_cast<int>(of.letters.find(letter)));
  return {transpose(of.x, order), letters};
}

// Without the axes that are not in `needed`.
LetteredTensor summed_letters(const LetteredTensor& of, const std::string& needed) {
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < of.letters.size(); ++axis)
    if (!has_letter(needed, of.letters[axis])) axes.push_back(static_cast<int>(axis));
  if (axes.empty()) return of;
  return {reduce_sum(of.x, axes),
          letters_where(of.letters, [&](char c) { return has_letter(needed, c); })};
}

// With an axis of size 1 for each letter of `all` that it lacks, in the order of `all`.
Output with_axes_of(const LetteredTensor& of, const std::string& all) {
  Output x = in_order(of, letters_where(all, [&](char c) { return has_letter(of.letters, c); })).x;
  for (std::size_t axis = 0; axis < all.size(); ++axis)
    if (!has_letter(of.letters, all[axis])) x = expand_dims(x, static_cast<int>(axis));
  return x;
}

// How the axes of two factors take part in their product.
struct ProductLetters {
  std::string both;         // the result has them, too
  std::string left, right;  // of one factor, and of the result
  std::string inner;        // summed over
};

// [both..., product of rows, product of columns], or with rows and columns exchanged.
Output as_matrices(const LetteredTensor& of, const std::string& both, const std::string& rows,
                   const std::string& columns) {
  const Output x = in_order(of, both + rows + columns).x;
  if (rows.size() == 1 && columns.size() == 1) return x;
  std::vector<std::int64_t> dims;
  for (const char letter : both) dims.push_back(of.size(letter));
  for (const std::string& group : {rows, columns}) {
    std::int64_t size = 1;
    for (const char letter : group)
      size = of.size(letter) == kUnknownSize || size == kUnknownSize ? kUnknownSize
                                                                     : size * of.size(letter);
    dims.push_back(size);
  }
  return reshape(x, Shape(dims));
}

// The product of matrices for letters in a given order, at best without copies.
LetteredTensor product_of_matrices(const LetteredTensor& a, const LetteredTensor& b,
                                   const ProductLetters& letters) {
  const auto& [both, left, right, inner] = letters;
  const auto only = [](const LetteredTensor& of, const std::string& order,
                       const std::string& other) {
    return of.letters == order && of.letters != other;
  };
  const bool transpose_a = only(a, both + inner + left, both + left + inner);
  const bool transpose_b = only(b, both + right + inner, both + inner + right);
  const Output c =
      matmul(transpose_a ? as_matrices(a, both, inner, left) : as_matrices(a, both, left, inner),
             transpose_b ? as_matrices(b, both, right, inner) : as_matrices(b, both, inner, right),
             {.transpose_a = transpose_a, .transpose_b = transpose_b});
  LetteredTensor result{c, both + left + right};
  if (left.size() == 1 && right.size() == 1) return result;
  std::vector<std::int64_t> dims;
  for (const char letter : both) dims.push_back(a.size(letter));
  for (const char letter : left) dims.push_back(a.size(letter));
  for (const char letter : right) dims.push_back(b.size(letter));
  result.x = reshape(c, Shape(dims));
  return result;
}

// The product of two factors, with the axes that are in `needed`.
LetteredTensor product_of_two(const LetteredTensor& first, const LetteredTensor& second,
                              const std::string& needed) {
  const LetteredTensor a = summed_letters(first, needed + second.letters);
  const LetteredTensor b = summed_letters(second, needed + first.letters);
  ProductLetters letters;
  for (const char c : a.letters)
    (!has_letter(b.letters, c) ? letters.left
     : has_letter(needed, c)   ? letters.both
                               : letters.inner) += c;
  letters.right = letters_where(b.letters, [&](char c) { return !has_letter(a.letters, c); });
  if (!letters.inner.empty() && !(letters.left.empty() && letters.right.empty()))
    return product_of_matrices(a, b, letters);
  const std::string all = letters.both + letters.left + letters.right + letters.inner;
  return summed_letters({mul(with_axes_of(a, all), with_axes_of(b, all)), all}, needed);
}

}  // namespace

Output einsum(std::string_view equation, std::span<const Output> operands, At at) {
  const EinsumEquation parts = parsed_equation(equation, at);
  check_operands(parts, equation, operands, at);
  const SiteScope site(operands[0].graph(), at.site);
  LetteredTensor result{operands[0], parts.operands[0]};
  for (std::size_t i = 1; i < operands.size(); ++i) {
    std::string needed = parts.result;
    for (std::size_t later = i + 1; later < operands.size(); ++later)
      needed += parts.operands[later];
    result = product_of_two(result, {operands[i], parts.operands[i]}, needed);
  }
  return in_order(summed_letters(result, parts.result), parts.result).x;
}

Output einsum(std::string_view equation, std::initializer_list<Output> operands, At at) {
  return einsum(equation, std::span(operands.begin(), operands.size()), at);
}

}  // namespace belfry
