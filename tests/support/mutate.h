// Makes wrong inputs out of right ones, the same on every machine.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace belfry::test {

using Input = std::vector<std::uint8_t>;

class Mutator {
 public:
  Mutator(std::vector<Input> corpus, std::uint64_t seed)
      : corpus_(std::move(corpus)), random_(seed) {}

  // An input of the corpus with one to four changes.
  Input next() {
    Input input = corpus_[draw(corpus_.size())];
    for (std::size_t changes = 1 + draw(4); changes > 0; --changes) change(input);
    return input;
  }

 private:
  // A number in [0, n), uniform enough, or 0.
  std::size_t draw(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void change(Input& input) {
    const std::size_t at = draw(input.size() + 1);
    const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = std::min(input.size() - at, draw(16));
    switch (draw(8)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<std::uint8_t>(1u << draw(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<std::uint8_t>(draw(256));
        break;
      case 2: insert(input, at, {static_cast<std::uint8_t>(draw(256))}); break;
      case 3: input.erase(from, from + static_cast<std::ptrdiff_t>(length)); break;
      case 4: insert(input, at, Input(from, from + static_cast<std::ptrdiff_t>(length))); break;
      case 5: input.resize(at); break;
      case 6: put_number(input, at); break;
      case 7: splice(input, at); break;
    }
  }

  static void insert(Input& input, std::size_t at, const Input& what) {
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), what.begin(), what.end());
  }

  // Puts a number at which sizes overflow, in one of the ways in which files write numbers.
  void put_number(Input& input, std::size_t at) {
    constexpr std::uint64_t kNumbers[] = {
        0, 1, 255, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 62, ~0ull >> 1, ~0ull - 7, ~0ull};
    const std::uint64_t number = kNumbers[draw(std::size(kNumbers))];
    const std::size_t width = std::size_t{1} << draw(4);
    Input bytes;
    for (std::size_t i = 0; i < width; ++i)
      bytes.push_back(static_cast<std::uint8_t>(number >> 8 * (i % 8)));
    const std::size_t form = draw(3);
    if (form == 0) std::ranges::reverse(bytes);
    if (form == 1) {
      const std::string digits = std::to_string(number);
      bytes.assign(digits.begin(), digits.end());
    }
    input.resize(std::max(input.size(), at + bytes.size()));
    std::ranges::copy(bytes, input.begin() + static_cast<std::ptrdiff_t>(at));
  }

  // Continues with the rest of another input.
  void splice(Input& input, std::size_t at) {
    const Input& other = corpus_[draw(corpus_.size())];
    const std::size_t from = draw(other.size() + 1);
    input.resize(at);
    input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
  }

  std::vector<Input> corpus_;
  std::mt19937_64 random_;
};

}  // namespace belfry::test
