// A product with a bfloat16 weight in panels: y = x @ w^T in float32, of bfloat16 numbers.
//
// A panel has 16 outputs. Their numbers for two neighboring inputs follow each other: [input / 2][output][2], which is
// what a dot product of pairs takes, so a sum needs no other lane and memory is read in order. The last panel is as wide
// as the outputs left. The sum of a row is the same however many rows there are.
#pragma once
#include <algorithm>
#if defined(__AMX_BF16__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include "registers.h"
#include "tensors.h"

namespace neuron_host {

constexpr int kPanel = 16; // outputs of a panel
constexpr int kRows = 8, kPanels = 3; // of a tile: its sums fill the registers
constexpr int64_t kDepth = 512; // inputs that are summed from zero: fewer roundings, and weights stay in the cache
constexpr int64_t kGrainBytes = 1 << 16; // of weights, that are worth a thread

struct Product {
  const uint16_t* x = nullptr;
  const uint16_t* weight = nullptr;
  float* result = nullptr;
  int64_t num_rows = 0, num_inputs = 0, num_outputs = 0;
};

#if defined(__AMX_BF16__)
constexpr int kTileRows = 16, kTileInputs = 32; // of a tile of `x`; a tile of a panel is as large
constexpr int64_t kGroupBytes = 1 << 19; // of panels, that stay in the cache while rows are read

// Tiles 0 to 3 are sums, 4 and 5 rows of `x`, 6 and 7 panels.
struct alignas(64) Layout {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit Layout(int64_t num_rows) {
    for (int tile = 0; tile < 8; tile++) row_bytes[tile] = 64, rows[tile] = tile < 6 ? num_rows : kTileRows;
  }
};

// The numbers of 32 inputs with zeros behind the last ones, and behind the last outputs or rows.
struct Padded {
  alignas(64) uint16_t numbers[kTileRows * kTileInputs];

  const uint16_t* panel(const uint16_t* from, int64_t width, int64_t num_inputs) {
    std::fill(std::begin(numbers), std::end(numbers), 0);
    for (int64_t i = 0; i < num_inputs / 2; i++)
      std::copy(from + i * 2 * width, from + (i + 1) * 2 * width, numbers + i * kTileInputs);
    return numbers;
  }

  const uint16_t* rows(const uint16_t* from, int64_t stride, int64_t num_rows, int64_t num_inputs) {
    std::fill(std::begin(numbers), std::end(numbers), 0);
    for (int64_t row = 0; row < num_rows; row++)
      std::copy(from + row * stride, from + row * stride + num_inputs, numbers + row * kTileInputs);
    return numbers;
  }
};

// Sums of one or two blocks of rows and one or two panels; `num_rows` are in each block.
template <int num_blocks, int num_panels>
void multiply_tiles(const Product& p, int64_t row, int64_t num_rows, int64_t output) {
  const int64_t width = std::min<int64_t>(kPanel, p.num_outputs - output);
  const uint16_t* x[2] = {p.x + row * p.num_inputs, p.x + (row + num_rows) * p.num_inputs};
  const uint16_t* panel[2] = {p.weight + output * p.num_inputs, p.weight + (output + kPanel) * p.num_inputs};
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  auto add = [&](const uint16_t* const* rows, int64_t stride, const uint16_t* const* weights) {
    _tile_loadd(4, rows[0], stride * 2);
    if (num_blocks > 1) _tile_loadd(5, rows[1], stride * 2);
    _tile_loadd(6, weights[0], 64);
    _tile_dpbf16ps(0, 4, 6);
    if (num_blocks > 1) _tile_dpbf16ps(1, 5, 6);
    if (num_panels > 1) {
      _tile_loadd(7, weights[1], 64);
      _tile_dpbf16ps(2, 4, 7);
      if (num_blocks > 1) _tile_dpbf16ps(3, 5, 7);
    }
  };
  const int64_t whole = width == kPanel ? p.num_inputs / kTileInputs * kTileInputs : 0;
  for (int64_t i = 0; i < whole; i += kTileInputs) {
    const uint16_t* rows[] = {x[0] + i, x[1] + i};
    const uint16_t* weights[] = {panel[0] + i * kPanel, panel[1] + i * kPanel};
    add(rows, p.num_inputs, weights);
  }
  for (int64_t i = whole; i < p.num_inputs; i += kTileInputs) {
    const int64_t count = std::min<int64_t>(kTileInputs, p.num_inputs - i);
    Padded padded[4];
    const uint16_t *rows[2], *weights[2];
    for (int n = 0; n < num_blocks; n++) rows[n] = padded[n].rows(x[n] + i, p.num_inputs, num_rows, count);
    for (int n = 0; n < num_panels; n++) weights[n] = padded[2 + n].panel(panel[n] + i * width, width, count);
    add(rows, kTileInputs, weights);
  }
  auto keep = [&](auto store, int block, int n) {
    float* to = p.result + (row + block * num_rows) * p.num_outputs + output + n * kPanel;
    if (width == kPanel) return store(to, p.num_outputs * 4);
    alignas(64) float sums[kTileRows * kPanel];
    store(sums, 64);
    for (int64_t r = 0; r < num_rows; r++) std::copy(sums + r * kPanel, sums + r * kPanel + width, to + r * p.num_outputs);
  };
  keep([](float* to, int64_t stride) { _tile_stored(0, to, stride); }, 0, 0);
  if (num_blocks > 1) keep([](float* to, int64_t stride) { _tile_stored(1, to, stride); }, 1, 0);
  if (num_panels > 1) keep([](float* to, int64_t stride) { _tile_stored(2, to, stride); }, 0, 1);
  if (num_blocks > 1 && num_panels > 1) keep([](float* to, int64_t stride) { _tile_stored(3, to, stride); }, 1, 1);
}

template <int num_blocks>
void multiply_panels(const Product& p, int64_t row, int64_t num_rows, int64_t begin, int64_t end) {
  const int64_t whole = std::min(end, p.num_outputs / kPanel);
  int64_t panel = begin;
  for (; panel + 2 <= whole; panel += 2) multiply_tiles<num_blocks, 2>(p, row, num_rows, panel * kPanel);
  for (; panel < end; panel++) multiply_tiles<num_blocks, 1>(p, row, num_rows, panel * kPanel);
}

// Rows in blocks of `num_rows`; the weights of a group are read again for each two of them.
inline void multiply_blocks(const Product& p, int64_t first, int64_t last, int64_t num_rows, int64_t begin, int64_t end) {
  if (first == last) return;
  const Layout layout(num_rows);
  _tile_loadconfig(&layout);
  const int64_t size = std::max<int64_t>(kGroupBytes / (p.num_inputs * kPanel * 2), 2);
  for (int64_t panel = begin; panel < end; panel += size) {
    int64_t row = first;
    for (; row + 2 * num_rows <= last; row += 2 * num_rows)
      multiply_panels<2>(p, row, num_rows, panel, std::min(panel + size, end));
    if (row < last) multiply_panels<1>(p, row, num_rows, panel, std::min(panel + size, end));
  }
  _tile_release();
}

inline void run_panels(int64_t begin, int64_t end, void* context) {
  const Product& p = *static_cast<const Product*>(context);
  const int64_t whole = p.num_rows / kTileRows * kTileRows;
  multiply_blocks(p, 0, whole, kTileRows, begin, end);
  multiply_blocks(p, whole, p.num_rows, p.num_rows - whole, begin, end);
}

// Linux gives a process tiles when it asks for them.
inline bool has_tiles() {
  static const bool granted = syscall(SYS_arch_prctl, /* ARCH_REQ_XCOMP_PERM */ 0x1023, /* XTILEDATA */ 18) == 0;
  return granted;
}
#elif defined(__AVX512BF16__)
typedef __m512 Sums;

inline Sums add_products(Sums sums, const uint16_t* x, __m512i weight) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return _mm512_dpbf16_ps(sums, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)weight);
}

// Add inputs [first, end) to a tile of the result; the first ones replace it.
template <int num_rows, int num_panels, bool is_whole>
void add_tile(const Product& p, int64_t row, int64_t output, int64_t first, int64_t end) {
  const int64_t width = is_whole ? kPanel : p.num_outputs - output;
  const __mmask16 mask = is_whole ? 0xffff : (1 << width) - 1;
  const uint16_t* x = p.x + row * p.num_inputs;
  const uint16_t* weight = p.weight + output * p.num_inputs;
  float* result = p.result + row * p.num_outputs + output;
  Sums sums[num_rows][num_panels];
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int n = 0; n < num_panels; n++) sums[r][n] = _mm512_setzero_ps();
  for (int64_t i = first; i < end; i += 2) {
    __m512i numbers[num_panels];
    UNROLL for (int n = 0; n < num_panels; n++)
      numbers[n] = _mm512_maskz_loadu_epi32(mask, weight + n * kPanel * p.num_inputs + i * width);
    UNROLL for (int r = 0; r < num_rows; r++)
      UNROLL for (int n = 0; n < num_panels; n++)
        sums[r][n] = add_products(sums[r][n], x + r * p.num_inputs + i, numbers[n]);
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int n = 0; n < num_panels; n++) {
      float* to = result + r * p.num_outputs + n * kPanel;
      if (first) sums[r][n] = _mm512_add_ps(sums[r][n], _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, sums[r][n]);
    }
}

template <int num_panels, bool is_whole>
void add_panels(const Product& p, int64_t output) {
  for (int64_t first = 0; first < p.num_inputs; first += kDepth) {
    const int64_t end = std::min(first + kDepth, p.num_inputs);
    int64_t row = 0;
    for (; row + kRows <= p.num_rows; row += kRows) add_tile<kRows, num_panels, is_whole>(p, row, output, first, end);
    if (p.num_rows - row >= 4) add_tile<4, num_panels, is_whole>(p, row, output, first, end), row += 4;
    if (p.num_rows - row >= 2) add_tile<2, num_panels, is_whole>(p, row, output, first, end), row += 2;
    if (p.num_rows - row >= 1) add_tile<1, num_panels, is_whole>(p, row, output, first, end);
  }
}

inline void run_panels(int64_t begin, int64_t end, void* context) {
  const Product& p = *static_cast<const Product*>(context);
  const int64_t whole = std::min(end, p.num_outputs / kPanel);
  int64_t panel = begin;
  for (; panel + kPanels <= whole; panel += kPanels) add_panels<kPanels, true>(p, panel * kPanel);
  for (; panel < whole; panel++) add_panels<1, true>(p, panel * kPanel);
  if (panel < end) add_panels<1, false>(p, panel * kPanel);
}
#else
// For any CPU: it is correct, and not what makes a step fast.
inline void run_panels(int64_t begin, int64_t end, void* context) {
  const Product& p = *static_cast<const Product*>(context);
  for (int64_t output = begin * kPanel; output < std::min(end * kPanel, p.num_outputs); output++) {
    const int64_t first = output / kPanel * kPanel, width = std::min<int64_t>(kPanel, p.num_outputs - first);
    const uint16_t* weight = p.weight + first * p.num_inputs + (output - first) * 2;
    for (int64_t row = 0; row < p.num_rows; row++) {
      float total = 0.0f;
      for (int64_t i = 0; i < p.num_inputs; i++)
        total += one(p.x + row * p.num_inputs + i) * one(weight + i / 2 * 2 * width + i % 2);
      p.result[row * p.num_outputs + output] = total;
    }
  }
}
#endif

#if !defined(__AMX_BF16__)
inline bool has_tiles() {
  return true; // it needs none
}
#endif

// Fail where the kernel cannot run, or a weight has another number of inputs.
inline void require(const Product& p, int64_t num_inputs) {
  if (!has_tiles()) throw std::runtime_error("this process may not use tiles");
  if (num_inputs != p.num_inputs || num_inputs % 2) throw std::invalid_argument("a weight of another shape");
}

// Panels that are worth a thread, if each is read `num_reads` times.
inline int64_t grain_of(const Product& p, int64_t num_reads) {
  return std::max<int64_t>(kGrainBytes / std::max<int64_t>(p.num_inputs * kPanel * 2 * num_reads, 1), 1);
}

} // namespace neuron_host
