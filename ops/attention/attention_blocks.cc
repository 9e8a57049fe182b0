#include "belfry/ops/attention/attention_blocks_impl.h"

// Unrolls the short loop after it, so that the vectors of an array become registers.
#if defined(__GNUC__) && !defined(__clang__)
#define BELFRY_UNROLL _Pragma("GCC unroll 4")
#else
#define BELFRY_UNROLL _Pragma("unroll")
#endif

namespace belfry::kernels {
namespace {

// Which terms of its sum a row of a square block takes: all, or those of one triangle. A term that
// is not taken is not read, so a NaN in it does no harm.
enum class Terms {
  kAll,
  kUpToRow,  // term q for q <= row
  kFromRow,  // term q for q >= row
};

// C [rows, columns] of A [rows, depth] and B [depth, columns]. Steps are in elements.
template <class T>
struct BlockProduct {
  const T* a;
  std::int64_t a_row, a_term;
  const T* b;
  std::int64_t b_row;
  T* c;
  std::int64_t c_row;
  std::int64_t rows, depth, columns;
};

// Rows of C that are computed at once: the last group may extend past the requested rows.
constexpr std::int64_t kGroupRows = 4;

// Vectors as wide as registers of an instruction set: wider ones would be in memory.
template <class T, std::int64_t kBytes>
struct RegisterVector {
  typedef T Type __attribute__((vector_size(kBytes)));
  static constexpr std::int64_t kLanes = kBytes / static_cast<std::int64_t>(sizeof(T));
};

// kVectors vectors of each row of a group.
template <class V, std::int64_t kVectors>
using GroupSums = typename V::Type[kGroupRows][kVectors];

// Adds a term to rows [kFirst, kEnd) of a group. Vectors are copied one at a time: a longer copy
// would keep the sums in memory.
template <class V, std::int64_t kFirst, std::int64_t kEnd, std::int64_t kVectors, class T>
BELFRY_HD void add_term(const BlockProduct<T>& p, const T* a, const T* b, std::int64_t term,
                        GroupSums<V, kVectors>& sums) {
  a += term * p.a_term;
  b += term * p.b_row;
  typename V::Type right[kVectors];
  BELFRY_UNROLL
  for (std::int64_t v = 0; v < kVectors; ++v)
    __builtin_memcpy(&right[v], b + v * V::kLanes, sizeof right[v]);
  BELFRY_UNROLL
  for (std::int64_t r = kFirst; r < kEnd; ++r) {
    BELFRY_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += right[v] * a[r * p.a_row];
  }
}

template <class V, std::int64_t kVectors, class T>
BELFRY_HD void load_group(const T* c, std::int64_t step, GroupSums<V, kVectors>& sums) {
  BELFRY_UNROLL
  for (std::int64_t r = 0; r < kGroupRows; ++r) {
    BELFRY_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v)
      __builtin_memcpy(&sums[r][v], c + r * step + v * V::kLanes, sizeof sums[r][v]);
  }
}

template <class V, std::int64_t kVectors, class T>
BELFRY_HD void store_group(const GroupSums<V, kVectors>& sums, std::int64_t step, T* c) {
  BELFRY_UNROLL
  for (std::int64_t r = 0; r < kGroupRows; ++r) {
    BELFRY_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v)
      __builtin_memcpy(c + r * step + v * V::kLanes, &sums[r][v], sizeof sums[r][v]);
  }
}

template <class V, std::int64_t kVectors, class Product, class T>
BELFRY_HD void multiply_group(const BlockProduct<T>& p, std::int64_t row, std::int64_t column) {
  static_assert(kGroupRows == 4);
  const T *const a = p.a + row * p.a_row, *const b = p.b + column;
  T* const c = p.c + row * p.c_row + column;
  GroupSums<V, kVectors> sums = {};
  if constexpr (Product::kAdds) load_group<V, kVectors>(c, p.c_row, sums);
  std::int64_t term = 0, end = p.depth;
  if constexpr (Product::kTerms == Terms::kFromRow) {
    add_term<V, 0, 1, kVectors>(p, a, b, row, sums);
    add_term<V, 0, 2, kVectors>(p, a, b, row + 1, sums);
    add_term<V, 0, 3, kVectors>(p, a, b, row + 2, sums);
    term = row + 3;
  }
  if constexpr (Product::kTerms == Terms::kUpToRow) end = row + 1;
  for (; term < end; ++term) add_term<V, 0, kGroupRows, kVectors>(p, a, b, term, sums);
  if constexpr (Product::kTerms == Terms::kUpToRow) {
    add_term<V, 1, 4, kVectors>(p, a, b, row + 1, sums);
    add_term<V, 2, 4, kVectors>(p, a, b, row + 2, sums);
    add_term<V, 3, 4, kVectors>(p, a, b, row + 3, sums);
  }
  store_group<V, kVectors>(sums, p.c_row, c);
}

// Multiplies all groups by a strip of B at a time, which stays in the first cache.
template <std::int64_t kBytes, class Product, class T>
BELFRY_HD void multiply_strips(const BlockProduct<T>& p) {
  using V = RegisterVector<T, kBytes>;
  for (std::int64_t column = 0; column < p.columns; column += 2 * V::kLanes) {
    const std::int64_t first = Product::kTriangle ? column : 0;
    if (p.columns - column > V::kLanes) {
      for (std::int64_t row = first; row < p.rows; row += kGroupRows)
        multiply_group<V, 2, Product>(p, row, column);
    } else {
      for (std::int64_t row = first; row < p.rows; row += kGroupRows)
        multiply_group<V, 1, Product>(p, row, column);
    }
  }
}

// Whether a product is added to C, and whether columns after the last row of a group are left
// unchanged.
template <Terms terms, bool adds, bool triangle>
struct ProductForm {
  static constexpr Terms kTerms = terms;
  static constexpr bool kAdds = adds, kTriangle = triangle;
};

template <class T>
using Multiply = void(const BlockProduct<T>&);

template <class Product, class T>
void multiply_by_16_bytes(const BlockProduct<T>& p) {
  multiply_strips<16, Product>(p);
}

// target_clones cannot make these, because their vectors differ.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
template <class Product, class T>
[[gnu::target("arch=x86-64-v3")]] void multiply_by_32_bytes(const BlockProduct<T>& p) {
  multiply_strips<32, Product>(p);
}
template <class Product, class T>
[[gnu::target("arch=x86-64-v4")]] void multiply_by_64_bytes(const BlockProduct<T>& p) {
  multiply_strips<64, Product>(p);
}

template <class Product, class T>
Multiply<T>* fastest_multiply() {
  if (__builtin_cpu_supports("x86-64-v4")) return multiply_by_64_bytes<Product, T>;
  if (__builtin_cpu_supports("x86-64-v3")) return multiply_by_32_bytes<Product, T>;
  return multiply_by_16_bytes<Product, T>;
}
#else
template <class Product, class T>
Multiply<T>* fastest_multiply() {
  return multiply_by_16_bytes<Product, T>;
}
#endif

template <Terms terms, bool adds, bool triangle, class T>
void multiply_blocks(const BlockProduct<T>& product) {
  static Multiply<T>* const multiply = fastest_multiply<ProductForm<terms, adds, triangle>, T>();
  multiply(product);
}

template <class T>
BELFRY_KERNEL void scale_loop(std::int64_t n, T factor, T* x) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
BELFRY_KERNEL void transpose_loop(const T* x, std::int64_t columns, std::int64_t step, T* to) {
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < kAttentionBlock; ++r)
      to[c * kAttentionBlock + r] = x[r * step + c];
}

}  // namespace

template <class T>
void scale_block(const HeadBlocks<T>& head, T factor, T* x) {
  scale_loop(head.block(), factor, x);
}

template <class T>
void transpose_block(const HeadBlocks<T>& head, const T* x, T* to) {
  transpose_loop(x, head.head_dim, head.columns, to);
}

template <class T>
void multiply_transposed(const HeadBlocks<T>& head, const T* x, const T* transposed,
                         std::int64_t rows, bool diagonal, T* scores) {
  const BlockProduct<T> product{.a = x,
                                .a_row = head.columns,
                                .a_term = 1,
                                .b = transposed,
                                .b_row = kAttentionBlock,
                                .c = scores,
                                .c_row = kAttentionBlock,
                                .rows = rows,
                                .depth = head.head_dim,
                                .columns = kAttentionBlock};
  if (diagonal)
    multiply_blocks<Terms::kAll, false, true>(product);
  else
    multiply_blocks<Terms::kAll, false, false>(product);
}

template <class T>
void add_over_keys(const HeadBlocks<T>& head, const T* weights, const T* x, std::int64_t rows,
                   bool diagonal, T* y) {
  const BlockProduct<T> product{.a = weights,
                                .a_row = kAttentionBlock,
                                .a_term = 1,
                                .b = x,
                                .b_row = head.columns,
                                .c = y,
                                .c_row = head.columns,
                                .rows = rows,
                                .depth = kAttentionBlock,
                                .columns = head.columns};
  if (diagonal)
    multiply_blocks<Terms::kUpToRow, true, false>(product);
  else
    multiply_blocks<Terms::kAll, true, false>(product);
}

template <class T>
void add_over_queries(const HeadBlocks<T>& head, const T* weights, const T* x, std::int64_t rows,
                      bool diagonal, T* y) {
  const BlockProduct<T> product{.a = weights,
                                .a_row = 1,
                                .a_term = kAttentionBlock,
                                .b = x,
                                .b_row = head.columns,
                                .c = y,
                                .c_row = head.columns,
                                .rows = diagonal ? rows : kAttentionBlock,
                                .depth = rows,
                                .columns = head.columns};
  if (diagonal)
    multiply_blocks<Terms::kFromRow, true, false>(product);
  else
    multiply_blocks<Terms::kAll, true, false>(product);
}

#define BELFRY_ATTENTION_BLOCKS_OF(T)                                                             \
  template void scale_block(const HeadBlocks<T>&, T, T*);                                         \
  template void transpose_block(const HeadBlocks<T>&, const T*, T*);                              \
  template void multiply_transposed(const HeadBlocks<T>&, const T*, const T*, std::int64_t, bool, \
                                    T*);                                                          \
  template void add_over_keys(const HeadBlocks<T>&, const T*, const T*, std::int64_t, bool, T*);  \
  template void add_over_queries(const HeadBlocks<T>&, const T*, const T*, std::int64_t, bool, T*);
BELFRY_ATTENTION_BLOCKS_OF(float)
BELFRY_ATTENTION_BLOCKS_OF(double)

}  // namespace belfry::kernels
