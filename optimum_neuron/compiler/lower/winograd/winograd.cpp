// Convolutions of a 3x3 filter, stride 1, with a quarter of the products: Winograd's F(4x4, 3x3), in float32.
//
// Images are in channels-last order. A patch of 6x6 inputs becomes 36 numbers of each channel, a filter 36 numbers of each
// pair of channels; their products, summed over channels, become a tile of 4x4 results. Patches of a group of tiles are
// transformed first. A task then computes a chunk of outputs of some tiles: it transforms filters a few at a time, so that
// they stay in the cache of its core, and no transformed weights are stored. Sums of a tile depend on no other tile.
//
// Inductor's code calls `aoti_torch_cpu_winograd`. The threads are torch's.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include "../headers/tensors.h"
#include "transforms.h"

namespace neuron_host {

constexpr int64_t kChunk = 64; // outputs of a task
constexpr int64_t kDepth = 32; // inputs whose filters are transformed at once
constexpr int64_t kTaskTiles = 48; // at most
constexpr int64_t kMinTaskTiles = 16; // where tasks are made smaller, so that all threads have as many
constexpr int64_t kAhead = 4; // inputs whose filters are fetched early
constexpr int64_t kApart = 16; // numbers between products: powers of two would share lines of the cache

// Sums that fill the registers of the target.
#if defined(__AVX512F__)
constexpr int kRows = 6, kVectors = 4;
#elif defined(__AVX__)
constexpr int kRows = 6, kVectors = 2;
#else
constexpr int kRows = 4, kVectors = 2;
#endif

// Memory of a thread, kept for its next call.
class Memory {
 public:
  float* at_least(int64_t size) {
    if (size > size_) {
      numbers_.reset(static_cast<float*>(std::aligned_alloc(64, round_up(size * sizeof(float), 64))));
      size_ = numbers_ ? size : 0;
      if (!numbers_) throw std::bad_alloc();
    }
    return numbers_.get();
  }

 private:
  struct Free {
    void operator()(float* numbers) const { std::free(numbers); }
  };
  std::unique_ptr<float, Free> numbers_;
  int64_t size_ = 0;
};

template <class Element>
struct Convolution {
  const Element *x = nullptr, *weight = nullptr, *bias = nullptr, *other = nullptr;
  Element* result = nullptr;
  int64_t num_images = 0, num_inputs = 0, num_outputs = 0;
  int64_t input_height = 0, input_width = 0, height = 0, width = 0, padding = 0;
  int64_t tile_rows = 0, tile_columns = 0; // of an image
  bool relu = false;
  // Of the group of tiles.
  float* patches = nullptr; // [block of inputs][product][tile][input]
  int64_t first = 0, num_tiles = 0, num_blocks = 0;

  int64_t stride_of_product(int64_t depth) const { return num_tiles * depth + kApart; }
  const float* patches_of(int64_t input, int64_t depth, int64_t product) const {
    return patches + input / kDepth * kProducts * stride_of_product(kDepth) + product * stride_of_product(depth);
  }
};

// Image, and the first row and column of the results of a tile.
struct Place {
  int64_t image, row, column;

  template <class Element>
  Place(const Convolution<Element>& c, int64_t tile) {
    const int64_t per_image = c.tile_rows * c.tile_columns, index = c.first + tile;
    image = index / per_image;
    row = index % per_image / c.tile_columns * kTile;
    column = index % c.tile_columns * kTile;
  }
};

template <class Element>
void transform_patches(int64_t begin, int64_t end, void* context) {
  const Convolution<Element>& c = *static_cast<const Convolution<Element>*>(context);
  for (int64_t tile = begin; tile < end; tile++) {
    const Place place(c, tile);
    const Element* pixels[kPatch][kPatch];
    for (int64_t i = 0; i < kPatch; i++)
      for (int64_t j = 0; j < kPatch; j++) {
        const int64_t row = place.row - c.padding + i, column = place.column - c.padding + j;
        const bool is_inside = row >= 0 && row < c.input_height && column >= 0 && column < c.input_width;
        const int64_t pixel = (place.image * c.input_height + row) * c.input_width + column;
        pixels[i][j] = is_inside ? c.x + pixel * c.num_inputs : nullptr;
      }
    for (int64_t input = 0; input < c.num_inputs; input += kLanes) {
      const int64_t block = input / kDepth * kDepth, depth = std::min(kDepth, c.num_inputs - block);
      float* to = const_cast<float*>(c.patches_of(block, depth, 0)) + tile * depth + input - block;
      Vector half[kPatch][kPatch];
      UNROLL for (int j = 0; j < kPatch; j++) {
        Vector column[kPatch];
        UNROLL for (int i = 0; i < kPatch; i++) column[i] = pixels[i][j] ? load(pixels[i][j] + input) : Vector{};
        transform_inputs(column, half[j]);
      }
      UNROLL for (int i = 0; i < kPatch; i++) {
        Vector row[kPatch], products[kPatch];
        UNROLL for (int j = 0; j < kPatch; j++) row[j] = half[j][i];
        transform_inputs(row, products);
        UNROLL for (int j = 0; j < kPatch; j++) store(to + (i * kPatch + j) * c.stride_of_product(depth), products[j]);
      }
    }
  }
}

// Filters of `depth` inputs and a chunk of outputs: [product][input][output].
template <class Element>
void transform_filters(const Element* weight, int64_t depth, float* to, int64_t stride) {
  for (int64_t input = 0; input < depth; input++)
    for (int64_t output = 0; output < kChunk; output += kLanes) {
      const Element* from = weight + input * 9 * kChunk + output;
      Vector half[3][kPatch];
      UNROLL for (int j = 0; j < 3; j++) {
        Vector column[3];
        UNROLL for (int i = 0; i < 3; i++) {
          column[i] = load(from + (i * 3 + j) * kChunk);
          __builtin_prefetch(from + (i * 3 + j + kAhead * 9) * kChunk);
        }
        transform_filter(column, half[j]);
      }
      UNROLL for (int i = 0; i < kPatch; i++) {
        Vector row[3], products[kPatch];
        UNROLL for (int j = 0; j < 3; j++) row[j] = half[j][i];
        transform_filter(row, products);
        UNROLL for (int j = 0; j < kPatch; j++)
          store(to + (i * kPatch + j) * stride + input * kChunk + output, products[j]);
      }
    }
}

template <int num_rows>
void add_products(
    const float* patches, const float* filters, float* sums, int64_t depth, int64_t ahead, bool is_first) {
  Vector totals[num_rows][kVectors];
  for (int64_t i = 0; i < num_rows * depth; i += 16) __builtin_prefetch(patches + ahead + i);
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int v = 0; v < kVectors; v++)
      totals[r][v] = is_first ? Vector{} : load(sums + r * kChunk + v * kLanes);
  for (int64_t i = 0; i < depth; i++) {
    Vector filter[kVectors];
    UNROLL for (int v = 0; v < kVectors; v++) filter[v] = load(filters + i * kChunk + v * kLanes);
    UNROLL for (int r = 0; r < num_rows; r++) {
      const float input = patches[r * depth + i];
      UNROLL for (int v = 0; v < kVectors; v++) totals[r][v] += input * filter[v];
    }
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int v = 0; v < kVectors; v++) store(sums + r * kChunk + v * kLanes, totals[r][v]);
}

// Of `num_tiles` tiles: sums[tile][output] += patches[tile][input] * filters[input][output].
inline void multiply(
    const float* patches, const float* filters, float* sums, int64_t num_tiles, int64_t depth, int64_t ahead, bool is_first) {
  for (int64_t v = 0; v < kChunk; v += kVectors * kLanes) {
    int64_t tile = 0;
    auto add = [&](auto function, int num_rows) {
      function(patches + tile * depth, filters + v, sums + tile * kChunk + v, depth, ahead, is_first);
      tile += num_rows;
    };
    while (tile + kRows <= num_tiles) add(add_products<kRows>, kRows);
    if (num_tiles - tile >= 4) add(add_products<4>, 4);
    if (num_tiles - tile >= 2) add(add_products<2>, 2);
    if (num_tiles - tile >= 1) add(add_products<1>, 1);
  }
}

template <class Element>
void write_results(const Convolution<Element>& c, int64_t tile, int64_t output, const float* sums, int64_t stride) {
  const Place place(c, tile);
  const int64_t num_rows = std::min<int64_t>(kTile, c.height - place.row);
  const int64_t num_columns = std::min<int64_t>(kTile, c.width - place.column);
  for (int64_t v = 0; v < kChunk; v += kLanes) {
    Vector half[kPatch][kTile];
    UNROLL for (int j = 0; j < kPatch; j++) {
      Vector column[kPatch];
      UNROLL for (int i = 0; i < kPatch; i++) column[i] = load(sums + (i * kPatch + j) * stride + v);
      transform_results(column, half[j]);
    }
    const Vector bias = c.bias ? load(c.bias + output + v) : Vector{};
    UNROLL for (int i = 0; i < kTile; i++) {
      if (i >= num_rows) break;
      Vector row[kPatch], results[kTile];
      UNROLL for (int j = 0; j < kPatch; j++) row[j] = half[j][i];
      transform_results(row, results);
      const int64_t pixel = (place.image * c.height + place.row + i) * c.width + place.column;
      UNROLL for (int j = 0; j < kTile; j++) {
        if (j >= num_columns) break;
        const int64_t at = (pixel + j) * c.num_outputs + output + v;
        Vector result = results[j] + bias;
        if (c.other) result += load(c.other + at);
        if (c.relu) result = result > 0.0f ? result : Vector{};
        store(c.result + at, result);
      }
    }
  }
}

template <class Element>
void run_tasks(int64_t begin, int64_t end, void* context) {
  const Convolution<Element>& c = *static_cast<const Convolution<Element>*>(context);
  thread_local Memory memory;
  const int64_t num_chunks = c.num_outputs / kChunk;
  const int64_t size = divide_up(c.num_tiles, c.num_blocks), stride = size * kChunk + kApart;
  constexpr int64_t filter_stride = kDepth * kChunk + kApart;
  float* sums = memory.at_least(kProducts * (stride + filter_stride));
  float* filters = sums + kProducts * stride;
  for (int64_t task = begin; task < end; task++) {
    const int64_t output = task % num_chunks * kChunk, first = task / num_chunks * size;
    const int64_t num_tiles = std::min(size, c.num_tiles - first);
    for (int64_t input = 0; input < c.num_inputs; input += kDepth) {
      const int64_t depth = std::min(kDepth, c.num_inputs - input);
      transform_filters(c.weight + (output * c.num_inputs + input * kChunk) * 9, depth, filters, filter_stride);
      for (int64_t product = 0; product < kProducts; product++)
        multiply(c.patches_of(input, depth, product) + first * depth, filters + product * filter_stride,
            sums + product * stride, num_tiles, depth, c.stride_of_product(depth), input == 0);
    }
    for (int64_t tile = 0; tile < num_tiles; tile++)
      write_results(c, first + tile, output, sums + tile * kChunk, stride);
  }
}

// Blocks of tiles of a group: few, but so many that threads have as many tasks each.
inline int64_t blocks_of(int64_t num_tiles, int64_t num_chunks, int64_t num_threads) {
  int64_t num_blocks = divide_up(num_tiles, kTaskTiles);
  auto is_uneven = [&] {
    const int64_t num_tasks = num_blocks * num_chunks;
    return num_tasks < 4 * num_threads && num_tasks % num_threads != 0;
  };
  while (is_uneven() && num_tiles / (num_blocks + 1) >= kMinTaskTiles) num_blocks++;
  return num_blocks;
}

template <class Element>
void convolve(Convolution<Element>& c) {
  thread_local Memory memory;
  c.tile_rows = divide_up(c.height, kTile), c.tile_columns = divide_up(c.width, kTile);
  const int64_t total = c.num_images * c.tile_rows * c.tile_columns, num_chunks = c.num_outputs / kChunk;
  uint32_t num_threads;
  check(torch_get_num_threads(&num_threads));
  const int64_t size = divide_up(total, divide_up(total, kTaskTiles * num_threads));
  for (c.first = 0; c.first < total; c.first += size) {
    c.num_tiles = std::min(size, total - c.first);
    c.patches = memory.at_least(divide_up(c.num_inputs, kDepth) * kProducts * c.stride_of_product(kDepth));
    c.num_blocks = blocks_of(c.num_tiles, num_chunks, num_threads);
    check(torch_parallel_for(0, c.num_tiles, 1, transform_patches<Element>, &c));
    check(torch_parallel_for(0, c.num_blocks * num_chunks, 1, run_tasks<Element>, &c));
  }
}

template <class Element>
void run(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* bias, AtenTensorHandle* other, int64_t padding,
    bool relu, AtenTensorHandle* result) {
  const int64_t *from = sizes_of(x), *filters = sizes_of(weight);
  Convolution<Element> c{data_of<const Element>(x), data_of<const Element>(weight)};
  if (bias) c.bias = data_of<const Element>(*bias);
  if (other) c.other = data_of<const Element>(*other);
  c.num_images = from[0], c.num_inputs = from[1], c.input_height = from[2], c.input_width = from[3];
  c.num_outputs = filters[0], c.padding = padding, c.relu = relu;
  c.height = c.input_height + 2 * padding - 2, c.width = c.input_width + 2 * padding - 2;
  if (filters[1] != c.num_inputs || c.num_inputs % kLanes || c.num_outputs % kChunk)
    throw std::invalid_argument("a weight of another shape");
  const int64_t sizes[] = {c.num_images, c.num_outputs, c.height, c.width};
  const int64_t strides[] = {c.height * c.width * c.num_outputs, 1, c.width * c.num_outputs, c.num_outputs};
  check(aoti_torch_empty_strided(4, sizes, strides, dtype_of(x), aoti_torch_device_type_cpu(), 0, result));
  c.result = data_of<Element>(*result);
  convolve(c);
}

} // namespace neuron_host

// All tensors have one dtype, float32 or bfloat16; images are in channels-last order. `weight` is as `chunks` writes it.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_winograd(
    AtenTensorHandle x,
    AtenTensorHandle weight,
    AtenTensorHandle* bias,
    AtenTensorHandle* other,
    int64_t padding,
    int32_t relu,
    AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const bool is_float = dtype_of(x) == aoti_torch_dtype_float32();
    (is_float ? run<float> : run<uint16_t>)(x, weight, bias, other, padding, relu != 0, result);
  });
}
