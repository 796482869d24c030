// The transforms of Winograd's F(4x4, 3x3): 16 results of a 3x3 filter from 36 products in place of 144.
//
// The points are 0, +-a, +-b, and infinity with a^2 = 1/2 and b^2 = 2: their powers are of one size, so the transforms
// lose fewer digits than those of 0, +-1, +-2. Each function transforms a row or a column.
#pragma once
#include "../headers/registers.h"

namespace neuron_host {

constexpr int kTile = 4; // results of a side
constexpr int kPatch = 6; // inputs of a side, and products
constexpr int kProducts = kPatch * kPatch;

constexpr float kA = 0.70710678118654752f, kB = 1.41421356237309505f;

// Six inputs.
inline void transform_inputs(const Vector (&d)[kPatch], Vector (&to)[kPatch]) {
  const Vector even_a = d[4] - 2.0f * d[2], odd_a = kA * d[3] - kB * d[1];
  const Vector even_b = d[4] - 0.5f * d[2], odd_b = kB * d[3] - kA * d[1];
  to[0] = d[0] - 2.5f * d[2] + d[4];
  to[1] = even_a + odd_a;
  to[2] = even_a - odd_a;
  to[3] = even_b + odd_b;
  to[4] = even_b - odd_b;
  to[5] = d[1] - 2.5f * d[3] + d[5];
}

// Three numbers of a filter.
inline void transform_filter(const Vector (&w)[3], Vector (&to)[kPatch]) {
  const Vector even_a = (-2.0f / 3) * w[0] - (1.0f / 3) * w[2], odd_a = (kB / 3) * w[1];
  const Vector even_b = (1.0f / 6) * w[0] + (1.0f / 3) * w[2], odd_b = (kB / 6) * w[1];
  to[0] = w[0];
  to[1] = even_a - odd_a;
  to[2] = even_a + odd_a;
  to[3] = even_b + odd_b;
  to[4] = even_b - odd_b;
  to[5] = w[2];
}

// Six sums of products.
inline void transform_results(const Vector (&m)[kPatch], Vector (&to)[kTile]) {
  const Vector even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  to[0] = m[0] + even_a + even_b;
  to[1] = kA * odd_a + kB * odd_b;
  to[2] = 0.5f * even_a + 2.0f * even_b;
  to[3] = (0.5f * kA) * odd_a + (2.0f * kB) * odd_b + m[5];
}

} // namespace neuron_host
