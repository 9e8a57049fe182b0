// The room ops/shapes.
#include <map>

#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

JsonValue list_of(const std::vector<int>& numbers) {
  JsonValue list = JsonValue::array();
  for (const int number : numbers) list.push(number);
  return list;
}

OpUse pad_use(Random& random) {
  const std::pair<PadMode, const char*> modes[] = {{PadMode::kConstant, "constant"},
                                                   {PadMode::kReflect, "reflect"},
                                                   {PadMode::kEdge, "edge"},
                                                   {PadMode::kWrap, "wrap"}};
  const auto [mode, name] = modes[random.integer(0, 3)];
  const Shape shape = random.shape();
  std::vector<AxisPads> pads;
  std::vector<int> numbers;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    const int most = mode == PadMode::kReflect ? static_cast<int>(shape[axis]) - 1 : 4;
    const int before = random.integer(0, most), after = random.integer(0, most);
    pads.push_back({before, after});
    numbers.insert(numbers.end(), {before, after});
  }
  return {[=](Inputs x) { return pad(x[0], pads, {.mode = mode, .value = 0.5}); },
          {random.values(shape)},
          JsonValue::object().set("pads", list_of(numbers)).set("mode", name)};
}

OpUse flip_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(0, static_cast<int>(shape.rank()) - 1);
  return {[=](Inputs x) { return flip(x[0], {axis}); },
          {random.values(shape)},
          JsonValue::object().set("axis", axis)};
}

OpUse roll_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(0, static_cast<int>(shape.rank()) - 1);
  const int shift = random.integer(-7, 7);
  return {[=](Inputs x) { return roll(x[0], shift, axis); },
          {random.values(shape)},
          JsonValue::object().set("shift", shift).set("axis", axis)};
}

OpUse tile_use(Random& random) {
  const Shape shape = random.shape();
  std::vector<int> times(static_cast<std::size_t>(random.integer(1, 4)));
  for (int& count : times) count = random.integer(1, 3);
  return {[=](Inputs x) {
            return tile(x[0], {times.begin(), times.end()});
          },
          {random.values(shape)},
          JsonValue::object().set("times", list_of(times))};
}

OpUse repeat_elements_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(0, static_cast<int>(shape.rank()) - 1);
  const int times = random.integer(1, 4);
  return {[=](Inputs x) { return repeat_elements(x[0], times, axis); },
          {random.values(shape)},
          JsonValue::object().set("times", times).set("axis", axis)};
}

OpUse strided_slice_use(Random& random) {
  const Shape shape = random.shape();
  std::vector<AxisSlice> slices;
  std::vector<int> numbers;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    const int begin = random.integer(-4, 4), end = random.integer(-4, 4);
    int step = random.integer(-3, 2);
    if (step == 0) step = 3;
    slices.push_back({.begin = begin, .end = end, .step = step});
    numbers.insert(numbers.end(), {begin, end, step});
  }
  return {[=](Inputs x) { return strided_slice(x[0], slices); },
          {random.values(shape)},
          JsonValue::object().set("slices", list_of(numbers))};
}

OpUse stack_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(-1, static_cast<int>(shape.rank()));
  std::vector<Tensor> inputs;
  for (int i = random.integer(1, 4); i > 0; --i) inputs.push_back(random.values(shape));
  return {[=](Inputs x) { return stack(x, axis); }, inputs, JsonValue::object().set("axis", axis)};
}

OpUse moveaxis_use(Random& random) {
  const Shape shape = random.shape();
  const auto rank = static_cast<int>(shape.rank());
  const int from = random.integer(-rank, rank - 1), to = random.integer(-rank, rank - 1);
  return {[=](Inputs x) { return moveaxis(x[0], from, to); },
          {random.values(shape)},
          JsonValue::object().set("source", from).set("destination", to)};
}

template <Output triangle(Output, std::int64_t, At)>
OpUse triangle_use(Random& random) {
  const Shape shape = random.shape(2);
  const int diagonal = random.integer(-3, 3);
  return {[=](Inputs x) { return triangle(x[0], diagonal, {}); },
          {random.values(shape)},
          JsonValue::object().set("diagonal", diagonal)};
}

OpUse resize_use(Random& random) {
  const std::pair<ResizeMethod, const char*> methods[] = {
      {ResizeMethod::kNearest, "nearest"},
      {ResizeMethod::kNearestExact, "nearest-exact"},
      {ResizeMethod::kBilinear, "bilinear"}};
  const auto [method, name] = methods[random.integer(0, 2)];
  const ImageSize size{random.integer(1, 9), random.integer(1, 9)};
  return {[=](Inputs x) { return resize(x[0], size, method); },
          {random.values(random.shape(4))},
          JsonValue::object()
              .set("size", list_of({static_cast<int>(size.height), static_cast<int>(size.width)}))
              .set("mode", name)};
}

template <Output op(Output, int, At), bool to_depth>
OpUse pixels_use(Random& random) {
  const int block = random.integer(1, 3);
  Shape shape = random.shape(4);
  if (to_depth)
    shape[1] *= block, shape[2] *= block;
  else
    shape[3] *= block * block;
  return {[=](Inputs x) { return op(x[0], block, {}); },
          {random.values(shape)},
          JsonValue::object().set("block", block)};
}

// Equations with sizes of their letters.
OpUse einsum_use(Random& random) {
  const std::vector<std::string> equations[] = {{"bij,bjk->bik", "bij", "bjk"},
                                                {"bqhd,bkhd->bhqk", "bqhd", "bkhd"},
                                                {"ij,jk->ki", "ij", "jk"},
                                                {"bi,bi->b", "bi", "bi"},
                                                {"i,j->ji", "i", "j"},
                                                {"abc,cbd->da", "abc", "cbd"},
                                                {"abc->ca", "abc"},
                                                {"ij,jk,kl->il", "ij", "jk", "kl"},
                                                {"ijk,k->ij", "ijk", "k"},
                                                {"bi,bj,bk->ijk", "bi", "bj", "bk"}};
  const std::vector<std::string>& chosen = equations[random.integer(0, 9)];
  std::map<char, std::int64_t> sizes;
  std::vector<Tensor> inputs;
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    std::vector<std::int64_t> dims;
    for (const char letter : chosen[i]) {
      if (!sizes.contains(letter)) sizes[letter] = random.integer(1, 5);
      dims.push_back(sizes[letter]);
    }
    inputs.push_back(random.values(Shape(dims)));
  }
  return {[equation = chosen[0]](Inputs x) { return einsum(equation, x); }, inputs,
          JsonValue::object().set("equation", chosen[0])};
}

// Vectors, matrices, and batches of which some are repeated.
OpUse broadcast_matmul_use(Random& random) {
  const int m = random.integer(1, 9), k = random.integer(1, 9), n = random.integer(1, 9);
  const Shape batch = random.shape(0, 3);
  const auto factor = [&](int rows, int columns, bool is_vector) {
    if (is_vector) return random.values({k});
    std::vector<std::int64_t> dims;
    const int first = random.integer(0, static_cast<int>(batch.rank()));
    for (std::size_t axis = static_cast<std::size_t>(first); axis < batch.rank(); ++axis)
      dims.push_back(random.integer(0, 2) == 0 ? 1 : batch[axis]);
    dims.insert(dims.end(), {rows, columns});
    return random.values(Shape(dims));
  };
  const bool row = random.integer(0, 4) == 0, column = random.integer(0, 4) == 0;
  const Tensor a = factor(m, k, row), b = factor(k, n, column);
  return {[](Inputs x) { return matmul(x[0], x[1]); }, {a, b}};
}

}  // namespace

std::vector<OpCase> shapes_cases() {
  return {{"pad", pad_use},
          {"flip", flip_use},
          {"roll", roll_use},
          {"tile", tile_use},
          {"repeat_elements", repeat_elements_use},
          {"strided_slice", strided_slice_use},
          {"stack", stack_use},
          {"moveaxis", moveaxis_use},
          {"tril", triangle_use<tril>},
          {"triu", triangle_use<triu>},
          {"resize", resize_use},
          {"space_to_depth", pixels_use<space_to_depth, true>},
          {"depth_to_space", pixels_use<depth_to_space, false>},
          {"pixel_unshuffle", pixels_use<pixel_unshuffle, true>},
          {"pixel_shuffle", pixels_use<pixel_shuffle, false>},
          {"einsum", einsum_use},
          {"broadcast_matmul", broadcast_matmul_use}};
}

}  // namespace belfry::bench
