// Attention in float32: softmax(query @ key^T * scale + mask) @ value, without a matrix of all scores.
//
// A task is a block of queries of one head. It passes over blocks of keys and keeps for each query the largest score so
// far, the sum of e^(score - largest), and the values mixed with these weights; a larger score rescales both
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al., "FlashAttention",
// 2022, algorithm 1). Keys and values are packed once for each head, queries for each task.
//
// Inductor's code calls `aoti_torch_cpu_attention`. The threads are torch's.
#include <bit>
#include <vector>
#include "../headers/tensors.h"
#include "vectors.h"

namespace neuron_host {

constexpr int64_t kQueryBlock = 96; // scores of a block are 48 KB
constexpr int64_t kKeyBlock = 128; // 64 columns of a block's values are 32 KB
constexpr int64_t kGrain = 1 << 19; // multiplications that are worth a thread: some 5 us
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

static_assert(kKeyBlock % kPanel == 0 && kQueryBlock % kTileRows == 0 && kQueryBlock % kLanes == 0);

// A tensor of four dimensions: batch, head, row, column.
struct Tensor {
  void* data = nullptr;
  int64_t sizes[4] = {}, strides[4] = {};

  template <class Element>
  Element* at(int64_t batch, int64_t head, int64_t row, int64_t column = 0) const {
    return static_cast<Element*>(data) + batch * strides[0] + head * strides[1] + row * strides[2] + column * strides[3];
  }

  Matrix matrix(int64_t batch, int64_t head, int64_t first_row, int64_t num_rows) const {
    return {at<float>(batch, head, first_row), num_rows, sizes[3], strides[2], strides[3]};
  }
};

struct Attention {
  Tensor query, key, value, mask, result;
  bool has_mask = false, is_bool_mask = false, is_causal = false;
  float scale = 1.0f;
  int64_t block_rows = 0, num_blocks = 0; // of the queries of a head
};

// Memory of a thread, kept for its next call.
struct Memory {
  struct alignas(kVectorBytes) Line {
    float lanes[kLanes];
  };
  std::vector<Line> lines;
};

class Worker {
 public:
  explicit Worker(const Attention& attention);
  void run(int64_t first_task, int64_t end_task);

 private:
  void start_head(int64_t batch, int64_t key_head);
  void start_block(int64_t batch, int64_t head, int64_t first, int64_t num_rows);
  void look(int64_t first_key, int64_t num_keys);
  void score(int64_t first_key, int64_t num_keys);
  void weigh(int64_t first_key, int64_t num_keys);
  void mix(int64_t first_key);
  void finish_block();

  bool has_mask_of(int64_t row) const { return attention_.has_mask && (row == 0 || attention_.mask.strides[2] != 0); }
  int64_t count_unmasked(int64_t row, int64_t first_key, int64_t num_keys) const;
  void read_mask(int64_t row, int64_t first_key, int64_t num_keys);

  // Of the rows of a tile the most keys that one sees.
  int64_t tile_sees(int64_t row, int64_t num_rows) const { return *std::max_element(sees_ + row, sees_ + row + num_rows); }

  const Attention& attention_;
  const int64_t num_keys_, width_, value_width_, query_stride_, mixed_stride_;
  int64_t batch_ = 0, head_ = 0, first_query_ = 0, num_rows_ = 0; // the block
  float *keys_, *values_; // packed, of the head
  float *queries_, *scores_, *mixed_; // rows of the block
  float mask_[kKeyBlock]; // of a row
  int64_t sees_[kQueryBlock]; // for each row how many keys there are up to the last one it sees
  Vector tops_[kQueryBlock] = {}, sums_[kQueryBlock];
  float largest_[kQueryBlock], factors_[kQueryBlock];
};

Worker::Worker(const Attention& attention)
    : attention_(attention),
      num_keys_(attention.key.sizes[2]),
      width_(attention.key.sizes[3]),
      value_width_(attention.value.sizes[3]),
      query_stride_(round_up(width_, kLanes)),
      mixed_stride_(round_up(value_width_, kLanes)) {
  thread_local Memory memory;
  const std::pair<float**, int64_t> parts[] = {
      {&keys_, packed_size(width_, num_keys_)},
      {&values_, packed_size(num_keys_, value_width_)},
      {&queries_, kQueryBlock * query_stride_},
      {&scores_, kQueryBlock * kKeyBlock},
      {&mixed_, kQueryBlock * mixed_stride_},
  };
  int64_t num_lines = 0;
  for (auto [part, size] : parts) num_lines += round_up(size, kLanes) / kLanes;
  if (memory.lines.size() < static_cast<size_t>(num_lines)) memory.lines.resize(num_lines);
  float* next = memory.lines.data()->lanes;
  for (auto [part, size] : parts) {
    *part = next;
    next += round_up(size, kLanes);
  }
}

void Worker::run(int64_t first_task, int64_t end_task) {
  const int64_t num_heads = attention_.query.sizes[1], group = num_heads / attention_.key.sizes[1];
  int64_t packed = -1;
  for (int64_t task = first_task; task < end_task; task++) {
    const int64_t head = task / attention_.num_blocks; // of all batches
    const int64_t first = task % attention_.num_blocks * attention_.block_rows;
    if (head / group != packed) start_head(head / num_heads, head % num_heads / group);
    packed = head / group;
    start_block(
        head / num_heads, head % num_heads, first, std::min(attention_.block_rows, attention_.query.sizes[2] - first));
    const int64_t end_key = attention_.is_causal ? std::min(num_keys_, first + num_rows_) : num_keys_;
    for (int64_t key = 0; key < end_key; key += kKeyBlock) {
      const int64_t num_keys = std::min(kKeyBlock, end_key - key);
      look(key, num_keys);
      score(key, num_keys);
      weigh(key, num_keys);
      mix(key);
    }
    finish_block();
  }
}

void Worker::start_head(int64_t batch, int64_t key_head) {
  pack_transposed(attention_.key.matrix(batch, key_head, 0, num_keys_), keys_);
  pack(attention_.value.matrix(batch, key_head, 0, num_keys_), values_);
}

void Worker::start_block(int64_t batch, int64_t head, int64_t first, int64_t num_rows) {
  batch_ = batch, head_ = head, first_query_ = first, num_rows_ = num_rows;
  const Matrix queries = attention_.query.matrix(batch, head, first, num_rows);
  for (int64_t row = 0; row < num_rows; row++)
    for (int64_t i = 0; i < width_; i += kLanes)
      store(queries_ + row * query_stride_ + i, queries.read(row, i) * attention_.scale);
  std::fill(mixed_, mixed_ + num_rows * mixed_stride_, 0.0f);
  std::fill(sums_, sums_ + kQueryBlock, Vector{});
  // Not -infinity: a query that sees no key then has a sum of 0, not a difference of infinities.
  std::fill(largest_, largest_ + kQueryBlock, kLowest);
}

// Find the keys behind which a row sees none: under a causal mask half of them need no work.
void Worker::look(int64_t first_key, int64_t num_keys) {
  int64_t unmasked = num_keys;
  for (int64_t row = 0; row < num_rows_; row++) {
    if (has_mask_of(row)) unmasked = count_unmasked(row, first_key, num_keys);
    const int64_t up_to_itself = std::clamp<int64_t>(first_query_ + row + 1 - first_key, 0, unmasked);
    sees_[row] = attention_.is_causal ? up_to_itself : unmasked;
  }
}

// Scores of the block's queries for some keys; where no row of a tile sees a key they stay as they are.
void Worker::score(int64_t first_key, int64_t num_keys) {
  for (int64_t key = 0; key < num_keys; key += kPanel) {
    const float* panel = keys_ + (first_key + key) * width_;
    const int64_t width = std::min<int64_t>(kPanel, round_up(num_keys_ - first_key - key, kLanes));
    for (int64_t row = 0; row < num_rows_; row += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, num_rows_ - row);
      const float* queries = queries_ + row * query_stride_;
      if (key < tile_sees(row, rows))
        tile_of(rows, width)(
            queries, query_stride_, panel, width_, nullptr, scores_ + row * kKeyBlock + key, kKeyBlock);
    }
  }
}

// Replace scores with weights.
void Worker::weigh(int64_t first_key, int64_t num_keys) {
  for (int64_t row = 0; row < num_rows_; row++) {
    float* scores = scores_ + row * kKeyBlock;
    const int64_t end = round_up(sees_[row], kLanes);
    std::fill(scores + sees_[row], scores + end, -kInfinity);
    if (has_mask_of(row)) read_mask(row, first_key, attention_.mask.strides[2] == 0 ? num_keys : sees_[row]);
    tops_[row] = Vector{} + largest_[row];
    for (int64_t i = 0; i < end; i += kLanes) {
      Vector x = load(scores + i);
      if (attention_.has_mask) store(scores + i, x += load(mask_ + i));
      tops_[row] = larger(x, tops_[row]);
    }
  }
  for (int64_t row = 0; row < num_rows_; row += kLanes) {
    const Vector before = load(largest_ + row);
    const Vector top = across(tops_ + row, larger);
    store(factors_ + row, exponential(before - top));
    store(largest_ + row, top);
  }
  for (int64_t row = 0; row < num_rows_; row++) {
    float* scores = scores_ + row * kKeyBlock;
    const int64_t end = round_up(sees_[row], kLanes);
    const float largest = largest_[row];
    Vector sum = sums_[row] * factors_[row];
    for (int64_t i = 0; i < end; i += kLanes) {
      const Vector weight = exponential(load(scores + i) - largest);
      sum += weight;
      store(scores + i, weight);
    }
    sums_[row] = sum;
    std::fill(scores + end, scores + std::max(end, num_keys), 0.0f);
  }
}

void Worker::mix(int64_t first_key) {
  for (int64_t column = 0; column < mixed_stride_; column += kPanel) {
    const int64_t width = std::min<int64_t>(kPanel, mixed_stride_ - column);
    const float* panel = values_ + column * num_keys_ + first_key * width;
    for (int64_t row = 0; row < num_rows_; row += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, num_rows_ - row);
      tile_of(rows, width)(
          scores_ + row * kKeyBlock,
          kKeyBlock,
          panel,
          tile_sees(row, rows),
          factors_ + row,
          mixed_ + row * mixed_stride_ + column,
          mixed_stride_);
    }
  }
}

void Worker::finish_block() {
  for (int64_t row = 0; row < num_rows_; row++) {
    if (row % kLanes == 0) {
      const Vector sums = across(sums_ + row, [](Vector a, Vector b) { return a + b; });
      store(factors_ + row, sums == 0.0f ? Vector{} : 1.0f / sums); // a query that sees no key: zeros, as in torch
    }
    const float* mixed = mixed_ + row * mixed_stride_;
    float* result = attention_.result.at<float>(batch_, head_, first_query_ + row);
    for (int64_t i = 0; i < value_width_; i++) result[i] = mixed[i] * factors_[row];
  }
}

// Up to the last key that the mask lets a row see.
int64_t Worker::count_unmasked(int64_t row, int64_t first_key, int64_t num_keys) const {
  const int64_t query = first_query_ + row, stride = attention_.mask.strides[3];
  auto count = [=](auto* from, auto masked) {
    int64_t end = num_keys;
    if (stride == 1)
      while (end >= kLanes && all_equal(from + end - kLanes, masked)) end -= kLanes;
    while (end > 0 && from[(end - 1) * stride] == masked) end--;
    return end;
  };
  if (attention_.is_bool_mask) return count(attention_.mask.at<uint8_t>(batch_, head_, query, first_key), uint8_t{0});
  return count(attention_.mask.at<float>(batch_, head_, query, first_key), -kInfinity);
}

// What is added to the scores of a row.
void Worker::read_mask(int64_t row, int64_t first_key, int64_t num_keys) {
  const int64_t query = first_query_ + row, stride = attention_.mask.strides[3];
  float* to = mask_;
  auto read = [=](auto* from, auto added) {
    if (stride == 1) // so that the compiler makes vectors of it
      for (int64_t i = 0; i < num_keys; i++) to[i] = added(from[i]);
    else
      for (int64_t i = 0; i < num_keys; i++) to[i] = added(from[i * stride]);
  };
  if (attention_.is_bool_mask)
    read(attention_.mask.at<uint8_t>(batch_, head_, query, first_key), [](int32_t keep) {
      return std::bit_cast<float>((keep - 1) & std::bit_cast<int32_t>(-kInfinity)); // 0 or -infinity
    });
  else
    read(attention_.mask.at<float>(batch_, head_, query, first_key), [](float added) { return added; });
  std::fill(to + num_keys, to + round_up(num_keys, kLanes), 0.0f);
}

Tensor view(AtenTensorHandle handle) {
  Tensor tensor;
  tensor.data = data_of<void>(handle);
  const int64_t* sizes = sizes_of(handle);
  int64_t* strides;
  check(aoti_torch_get_strides(handle, &strides));
  std::copy(sizes, sizes + 4, tensor.sizes);
  for (int i = 0; i < 4; i++) tensor.strides[i] = sizes[i] == 1 ? 0 : strides[i];
  return tensor;
}

// Memory is batch, query, head, width: what follows is a product of rows of all heads.
AtenTensorHandle allocate(const Attention& attention) {
  const auto& [batch, num_heads, num_queries, _] = attention.query.sizes;
  const int64_t width = attention.value.sizes[3];
  const int64_t sizes[] = {batch, num_heads, num_queries, width};
  const int64_t strides[] = {num_queries * num_heads * width, width, num_heads * width, 1};
  AtenTensorHandle handle;
  check(aoti_torch_empty_strided(
      4, sizes, strides, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, &handle));
  return handle;
}

void run(Attention& attention) {
  const auto& [batch, num_heads, num_queries, width] = attention.query.sizes;
  attention.num_blocks = divide_up(num_queries, kQueryBlock);
  attention.block_rows = round_up(divide_up(num_queries, std::max<int64_t>(attention.num_blocks, 1)), kTileRows);
  const int64_t per_task = attention.block_rows * attention.key.sizes[2] * (width + attention.value.sizes[3]);
  auto tasks = [](int64_t first, int64_t end, void* context) {
    Worker(*static_cast<const Attention*>(context)).run(first, end);
  };
  const int64_t num_tasks = batch * num_heads * attention.num_blocks;
  check(torch_parallel_for(0, num_tasks, 1 + kGrain / std::max<int64_t>(per_task, 1), tasks, &attention));
}

} // namespace neuron_host

extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_attention(
    AtenTensorHandle query,
    AtenTensorHandle key,
    AtenTensorHandle value,
    AtenTensorHandle* mask,
    int32_t is_causal,
    double scale,
    AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    Attention attention;
    attention.query = view(query);
    attention.key = view(key);
    attention.value = view(value);
    if (mask) {
      attention.mask = view(*mask);
      attention.has_mask = true;
      attention.is_bool_mask = dtype_of(*mask) == aoti_torch_dtype_bool();
    }
    attention.is_causal = is_causal;
    attention.scale = static_cast<float>(scale);
    *result = allocate(attention);
    attention.result = view(*result);
    run(attention);
  });
}
