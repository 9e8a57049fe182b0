// The routines of LAPACK and BLAS that kernels call. They take matrices by columns, so they see the
// transpose of each of ours, and the other triangle. Builds without LAPACK have none of this.
#pragma once
#if BELFRY_LAPACK
#include <cstddef>

extern "C" {
// Last come the lengths of the texts, as gfortran passes them.
void spotrf_(const char* triangle, const int* n, float* a, const int* stride, int* info,
             std::size_t);
void dpotrf_(const char* triangle, const int* n, double* a, const int* stride, int* info,
             std::size_t);
void sgetrf_(const int* rows, const int* columns, float* a, const int* stride, int* pivots,
             int* info);
void dgetrf_(const int* rows, const int* columns, double* a, const int* stride, int* pivots,
             int* info);
void strsm_(const char* side, const char* triangle, const char* transpose, const char* diagonal,
            const int* rows, const int* columns, const float* factor, const float* a,
            const int* stride_a, float* b, const int* stride_b, std::size_t, std::size_t,
            std::size_t, std::size_t);
void dtrsm_(const char* side, const char* triangle, const char* transpose, const char* diagonal,
            const int* rows, const int* columns, const double* factor, const double* a,
            const int* stride_a, double* b, const int* stride_b, std::size_t, std::size_t,
            std::size_t, std::size_t);
}

namespace belfry {

template <class T>
struct Lapack;
template <>
struct Lapack<float> {
  static constexpr auto* potrf = spotrf_;
  static constexpr auto* getrf = sgetrf_;
  static constexpr auto* trsm = strsm_;
};
template <>
struct Lapack<double> {
  static constexpr auto* potrf = dpotrf_;
  static constexpr auto* getrf = dgetrf_;
  static constexpr auto* trsm = dtrsm_;
};

}  // namespace belfry
#endif
