// Vector arithmetic of attention: a matrix product in registers, the packing of its operands, and e^x.
//
// Written with the vector extension of GCC and Clang; the compiler's target says how wide a vector is. It knows no
// tensors and no attention.
//
// A packed matrix is cut into panels of kPanel columns. Within a panel its rows follow each other; the last panel is as
// wide as the columns left, in whole vectors, with zeros behind them.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include "../headers/registers.h"

namespace neuron_host {

// A tile of kTileRows x kTileVectors sums, a row of vectors and a factor fill the registers of the target.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
constexpr int kTileRows = 6;
constexpr int kPanel = kTileVectors * kLanes;

inline Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}

template <class Element>
bool all_equal(const Element* lanes, Element value) {
  bool all = true;
  for (int i = 0; i < kLanes; i++) all &= lanes[i] == value;
  return all;
}

// e^x of x <= 0 within 1.5 units in the last place; 0 where it would be less than the smallest normal number.
// x = n ln 2 + r, with ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions", 1980,
// chapter 6); the polynomial is the one of degree 6 whose largest relative error for |r| <= ln 2 / 2 is smallest, 2e-9.
inline Vector exponential(Vector x) {
  constexpr float kRounding = 0x1.8p23f; // adding it leaves the nearest integer in the low bits
  Vector shifted = x * 0x1.715476p0f + kRounding;
  Vector n = shifted - kRounding;
  Vector r = x - n * 0x1.62e400p-1f;
  r = r - n * 0x1.7f7d1cp-20f;
  Vector y = r * 0.0013836835f + 0.008374824f;
  y = y * r + 0.041668225f;
  y = y * r + 0.166664198f;
  y = y * r + 0.49999991f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  Integers exponent = reinterpret_cast<Integers>(shifted) + 127;
  y = y * reinterpret_cast<Vector>(exponent << 23);
  return x < -87.0f ? Vector{} : y;
}

// c = c * factors + a @ b for a tile, with a factor for each row of c; without factors c = a @ b.
template <int num_rows, int num_vectors>
void multiply_tile(
    const float* a, int64_t a_stride, const float* b, int64_t depth, const float* factors, float* c, int64_t c_stride) {
  Vector sums[num_rows][num_vectors];
  UNROLL for (int row = 0; row < num_rows; row++)
    UNROLL for (int i = 0; i < num_vectors; i++)
      sums[row][i] = factors ? load(c + row * c_stride + i * kLanes) * factors[row] : Vector{};
  for (int64_t k = 0; k < depth; k++, b += num_vectors * kLanes) {
    Vector b_row[num_vectors];
    UNROLL for (int i = 0; i < num_vectors; i++) b_row[i] = load(b + i * kLanes);
    UNROLL for (int row = 0; row < num_rows; row++)
      UNROLL for (int i = 0; i < num_vectors; i++) sums[row][i] += a[row * a_stride + k] * b_row[i];
  }
  UNROLL for (int row = 0; row < num_rows; row++, c += c_stride)
    UNROLL for (int i = 0; i < num_vectors; i++) store(c + i * kLanes, sums[row][i]);
}

using MultiplyTile = decltype(&multiply_tile<1, 1>);

template <int... i>
constexpr std::array<MultiplyTile, sizeof...(i)> all_tiles(std::integer_sequence<int, i...>) {
  return {&multiply_tile<i / kTileVectors + 1, i % kTileVectors + 1>...};
}

// The code for a tile of up to kTileRows rows and up to kPanel columns, in whole vectors.
inline MultiplyTile tile_of(int64_t num_rows, int64_t num_columns) {
  static constexpr auto tiles = all_tiles(std::make_integer_sequence<int, kTileRows * kTileVectors>());
  return tiles[(num_rows - 1) * kTileVectors + num_columns / kLanes - 1];
}

// Lanes of a and b in turns, from `start` on.
template <int... i>
Vector interleave(Vector a, Vector b, std::integer_sequence<int, i...>, int start) {
#if defined(__clang__)
  return start ? __builtin_shufflevector(a, b, (kLanes / 2 + i / 2 + i % 2 * kLanes)...)
               : __builtin_shufflevector(a, b, (i / 2 + i % 2 * kLanes)...);
#else
  return __builtin_shuffle(a, b, Integers{(i / 2 + i % 2 * kLanes)...} + start);
#endif
}

// Transpose a square: interleaving the first half of its rows with the second log2(kLanes) times.
inline void transpose(Vector (&rows)[kLanes]) {
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  UNROLL for (int step = 1; step < kLanes; step *= 2) {
    Vector next[kLanes];
    UNROLL for (int i = 0; i < kLanes / 2; i++) {
      next[2 * i] = interleave(rows[i], rows[i + kLanes / 2], lanes, 0);
      next[2 * i + 1] = interleave(rows[i], rows[i + kLanes / 2], lanes, kLanes / 2);
    }
    std::copy(next, next + kLanes, rows);
  }
}

// Reduce each of kLanes vectors to one lane of the result.
template <class Reduce>
Vector across(const Vector* vectors, Reduce reduce) {
  Vector rows[kLanes];
  std::copy(vectors, vectors + kLanes, rows);
  transpose(rows);
  Vector reduced = rows[0];
  for (int i = 1; i < kLanes; i++) reduced = reduce(reduced, rows[i]);
  return reduced;
}

// A matrix somewhere in memory.
struct Matrix {
  const float* data;
  int64_t num_rows, num_columns;
  int64_t row_stride, column_stride;

  // A vector out of a row; zeros behind the last column and the last row.
  Vector read(int64_t row, int64_t column) const {
    const float* from = data + row * row_stride + column * column_stride;
    const int64_t count = row < num_rows ? std::min<int64_t>(kLanes, num_columns - column) : 0;
    if (count == kLanes && column_stride == 1) return load(from);
    Vector vector = {};
    for (int64_t i = 0; i < count; i++) vector[i] = from[i * column_stride];
    return vector;
  }
};

inline int64_t packed_size(int64_t num_rows, int64_t num_columns) {
  return num_rows * round_up(num_columns, kLanes);
}

// Panels of the matrix.
inline void pack(const Matrix& from, float* to) {
  for (int64_t first = 0; first < from.num_columns; first += kPanel) {
    int64_t end = std::min(first + kPanel, from.num_columns);
    for (int64_t row = 0; row < from.num_rows; row++)
      for (int64_t column = first; column < end; column += kLanes, to += kLanes) store(to, from.read(row, column));
  }
}

// Panels of the transposed matrix: what were rows are columns.
inline void pack_transposed(const Matrix& from, float* to) {
  for (int64_t first = 0; first < from.num_rows; first += kPanel) {
    int64_t width = std::min<int64_t>(kPanel, round_up(from.num_rows - first, kLanes));
    for (int64_t offset = 0; offset < width; offset += kLanes)
      for (int64_t column = 0; column < from.num_columns; column += kLanes) {
        Vector square[kLanes];
        for (int i = 0; i < kLanes; i++) square[i] = from.read(first + offset + i, column);
        transpose(square);
        int64_t count = std::min<int64_t>(kLanes, from.num_columns - column);
        for (int64_t i = 0; i < count; i++) store(to + (column + i) * width + offset, square[i]);
      }
    to += from.num_columns * width;
  }
}

} // namespace neuron_host
