// Attention of a few queries of each row to a cache: softmax(query @ key^T * scale + mask) @ value, in float32.
//
// A step of a decoder reads keys and values once, where they lie: in blocks of a pool that a table lists for each row,
// or in one block for each row. What no query of a row sees is not read, so the time is that of the tokens there are.
// A task is a key head of a row, with all queries that share it; it depends on nothing else, so neither other rows nor
// the number of slots change a result.
//
// Numbers of 8 bits are converted in registers. Scales of keys multiply scores, and those of values the weights.
//
// Inductor's code calls `aoti_torch_cpu_block_attention`. The threads are torch's.
#include <algorithm>
#include <vector>
#include "../attention/vectors.h"
#include "../headers/tensors.h"

namespace neuron_host {

constexpr int kSlots = 2 * kLanes; // of a piece
constexpr int kQueries = 4, kColumns = 4; // queries and vectors of values that are summed side by side
constexpr int64_t kAheadBytes = 128; // of keys that are fetched early: without blocks, a piece's rows are far apart
constexpr int64_t kGrain = 1 << 17; // multiplications that are worth a thread
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Element>
struct Tensor {
  const Element* data = nullptr;
  int64_t sizes[4] = {}, strides[4] = {};

  const Element* at(int64_t i, int64_t j, int64_t k = 0) const {
    return data + i * strides[0] + j * strides[1] + k * strides[2];
  }
};

// Of keys and values.
template <class Element>
struct Attention {
  Tensor<float> query; // row, head, query, width
  Tensor<Element> key, value; // block, key head, slot, width
  Tensor<float> key_scale, value_scale; // block, key head, slot; without data where there are none
  Tensor<uint8_t> mask; // row, 1, query, slot
  const int64_t* table = nullptr; // [row][block]; null where each row has one block, its own
  int64_t num_blocks = 1; // of a row
  float scale = 1.0f;
  float* result = nullptr; // [row][query][head][width]
};

// Neighboring slots of a block that some query sees.
struct Piece {
  int64_t block, slot, first; // `first` counts slots of the row
  int count;
};

// Memory of a thread, kept for its next call.
struct Memory {
  std::vector<Piece> pieces;
  std::vector<float> queries; // [row][query of the head][width]
  std::vector<float> weights; // [query of the head][piece][kSlots]
  std::vector<float> factors; // [piece][kSlots], of values
  std::vector<float> sums;
};

// The first `count` numbers, zeros behind them.
template <class Element>
Vector load_some(const Element* from, int64_t stride, int64_t count) {
  if (stride == 1 && count >= kLanes) return load(from);
  Vector vector = {};
  for (int64_t i = 0; i < std::min<int64_t>(count, kLanes); i++) vector[i] = one(from + i * stride);
  return vector;
}

template <class Element>
class Worker {
 public:
  Worker(const Attention<Element>& attention, Memory& memory)
      : a_(attention),
        memory_(memory),
        group_(a_.query.sizes[1] / a_.key.sizes[1]),
        num_queries_(group_ * a_.query.sizes[2]),
        width_(a_.key.sizes[3]),
        value_width_(a_.value.sizes[3]) {}

  void run(int64_t row, int64_t head) {
    row_ = row, head_ = head;
    find_pieces();
    memory_.weights.resize(num_queries_ * stride());
    read_queries();
    for (size_t piece = 0; piece < memory_.pieces.size(); piece++)
      in_groups([=, this]<int count>(int64_t query) { score<count>(piece, query); });
    weigh();
    for (int64_t column = 0; column < value_width_; column += kColumns * kLanes)
      in_groups([=, this]<int count>(int64_t query) { mix<count>(column, query); });
  }

 private:
  // Keys and values are converted once for a group of queries.
  template <class Body>
  void in_groups(Body body) {
    int64_t query = 0;
    for (; query + kQueries <= num_queries_; query += kQueries) body.template operator()<kQueries>(query);
    switch (num_queries_ - query) {
      case 3: return body.template operator()<3>(query);
      case 2: return body.template operator()<2>(query);
      case 1: return body.template operator()<1>(query);
    }
  }

  // What scores or weights of a vector of slots are multiplied by.
  Vector factors_of(const Tensor<float>& scale, const Piece& piece, int first) const {
    if (!scale.data) return Vector{} + kUnit<Element>;
    const float* from = scale.at(piece.block, head_, piece.slot + first);
    return load_some(from, scale.strides[2], piece.count - first) * kUnit<Element>;
  }

  int64_t stride() const { return memory_.pieces.size() * kSlots; }
  int64_t token_of(int64_t query) const { return query % a_.query.sizes[2]; }
  int64_t head_of(int64_t query) const { return head_ * group_ + query / a_.query.sizes[2]; }

  const uint8_t* mask_of(int64_t token, int64_t slot) const {
    return a_.mask.at(row_, 0, token) + slot * a_.mask.strides[3];
  }

  bool is_seen(const Piece& piece) const {
    for (int64_t token = 0; token < a_.query.sizes[2]; token++)
      for (int i = 0; i < piece.count; i++)
        if (*mask_of(token, piece.first + i)) return true;
    return false;
  }

  void find_pieces() {
    const int64_t block_size = a_.key.sizes[2];
    memory_.pieces.clear();
    for (int64_t index = 0; index < a_.num_blocks; index++)
      for (int64_t slot = 0; slot < block_size; slot += kSlots) {
        const Piece piece{a_.table ? a_.table[row_ * a_.num_blocks + index] : row_, slot, index * block_size + slot,
            static_cast<int>(std::min<int64_t>(kSlots, block_size - slot))};
        if (is_seen(piece)) memory_.pieces.push_back(piece);
      }
  }

  void read_queries() {
    memory_.queries.resize(num_queries_ * width_);
    for (int64_t query = 0; query < num_queries_; query++) {
      const float* from = a_.query.at(row_, head_of(query), token_of(query));
      for (int64_t i = 0; i < width_; i++)
        memory_.queries[query * width_ + i] = from[i * a_.query.strides[3]] * a_.scale;
    }
  }

  template <int count>
  void score(size_t index, int64_t query) {
    const Piece& piece = memory_.pieces[index];
    const Element* key = a_.key.at(piece.block, head_, piece.slot);
    const int64_t next = a_.key.strides[2], below = a_.key.strides[3];
    const float* queries = memory_.queries.data() + query * width_;
    Vector sums[count][2] = {};
    auto add = [&](int64_t i, Vector low, Vector high) {
      UNROLL for (int q = 0; q < count; q++) {
        sums[q][0] += low * queries[q * width_ + i];
        sums[q][1] += high * queries[q * width_ + i];
      }
    };
    if (next == 1 && piece.count == kSlots)
      for (int64_t i = 0; i < width_; i++) {
        const Element* from = key + i * below;
        __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
        add(i, load(from), load(from + kLanes));
      }
    else
      for (int64_t i = 0; i < width_; i++)
        add(i, load_some(key + i * below, next, piece.count),
            load_some(key + i * below + kLanes * next, next, std::max(piece.count - kLanes, 0)));
    const Vector low = factors_of(a_.key_scale, piece, 0), high = factors_of(a_.key_scale, piece, kLanes);
    UNROLL for (int q = 0; q < count; q++) {
      float* to = memory_.weights.data() + (query + q) * stride() + index * kSlots;
      store(to, sums[q][0] * low), store(to + kLanes, sums[q][1] * high);
      const uint8_t* mask = mask_of(token_of(query + q), piece.first);
      for (int i = 0; i < kSlots; i++)
        if (i >= piece.count || !mask[i * a_.mask.strides[3]]) to[i] = -kInfinity;
    }
  }

  // Replace scores with weights that are not yet divided by their sum.
  void weigh() {
    memory_.sums.resize(num_queries_);
    memory_.factors.resize(stride());
    for (size_t index = 0; index < memory_.pieces.size(); index++)
      UNROLL for (int first = 0; first < kSlots; first += kLanes)
        store(memory_.factors.data() + index * kSlots + first, factors_of(a_.value_scale, memory_.pieces[index], first));
    for (int64_t query = 0; query < num_queries_; query++) {
      float* weights = memory_.weights.data() + query * stride();
      float largest = std::numeric_limits<float>::lowest(); // not -infinity: a query that sees no key has a sum of 0
      for (int64_t i = 0; i < stride(); i++) largest = std::max(largest, weights[i]);
      Vector total = {};
      for (int64_t i = 0; i < stride(); i += kLanes) {
        const Vector weight = exponential(load(weights + i) - largest);
        store(weights + i, weight * load(memory_.factors.data() + i));
        total += weight;
      }
      memory_.sums[query] = sum(total);
    }
  }

  template <int count>
  void mix(int64_t column, int64_t query) {
    Vector sums[count][kColumns] = {};
    const int64_t num_columns = value_width_ - column;
    const int64_t next = a_.value.strides[2], beside = a_.value.strides[3];
    const float* weights = memory_.weights.data() + query * stride();
    for (const Piece& piece : memory_.pieces) {
      const Element* value = a_.value.at(piece.block, head_, piece.slot) + column * beside;
      auto add = [&](int i, auto read) {
        Vector from[kColumns];
        UNROLL for (int c = 0; c < kColumns; c++) from[c] = read(value + i * next + c * kLanes * beside, c);
        UNROLL for (int q = 0; q < count; q++)
          UNROLL for (int c = 0; c < kColumns; c++) sums[q][c] += from[c] * weights[q * stride() + i];
      };
      if (beside == 1 && num_columns >= kColumns * kLanes)
        for (int i = 0; i < piece.count; i++) add(i, [](const Element* from, int) { return load(from); });
      else
        for (int i = 0; i < piece.count; i++)
          add(i, [=](const Element* from, int c) { return load_some(from, beside, num_columns - c * kLanes); });
      weights += kSlots;
    }
    UNROLL for (int q = 0; q < count; q++) {
      const float total = memory_.sums[query + q], factor = total == 0.0f ? 0.0f : 1.0f / total;
      const int64_t place = (row_ * a_.query.sizes[2] + token_of(query + q)) * a_.query.sizes[1] + head_of(query + q);
      float* to = a_.result + place * value_width_ + column;
      UNROLL for (int c = 0; c < kColumns; c++)
        for (int64_t i = 0; i < std::min<int64_t>(kLanes, num_columns - c * kLanes); i++)
          to[c * kLanes + i] = sums[q][c][i] * factor;
    }
  }

  const Attention<Element>& a_;
  Memory& memory_;
  const int64_t group_, num_queries_, width_, value_width_;
  int64_t row_ = 0, head_ = 0;
};

template <class Element>
Tensor<Element> view(AtenTensorHandle handle) {
  Tensor<Element> tensor;
  tensor.data = data_of<const Element>(handle);
  const int64_t* sizes = sizes_of(handle);
  int64_t* strides;
  check(aoti_torch_get_strides(handle, &strides));
  std::copy(sizes, sizes + 4, tensor.sizes);
  for (int i = 0; i < 4; i++) tensor.strides[i] = sizes[i] == 1 ? 0 : strides[i];
  return tensor;
}

template <class Element>
void run_tasks(int64_t begin, int64_t end, void* context) {
  thread_local Memory memory;
  const Attention<Element>& attention = *static_cast<const Attention<Element>*>(context);
  Worker<Element> worker(attention, memory);
  const int64_t num_heads = attention.key.sizes[1];
  for (int64_t task = begin; task < end; task++) worker.run(task / num_heads, task % num_heads);
}

template <class Element>
void run(AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, AtenTensorHandle* key_scale,
    AtenTensorHandle* value_scale, AtenTensorHandle* table, AtenTensorHandle mask, double scale,
    AtenTensorHandle* result) {
  Attention<Element> a{view<float>(query), view<Element>(key), view<Element>(value)};
  if (key_scale) a.key_scale = view<float>(*key_scale);
  if (value_scale) a.value_scale = view<float>(*value_scale);
  a.mask = view<uint8_t>(mask);
  a.scale = static_cast<float>(scale);
  if (table) a.table = data_of<const int64_t>(*table), a.num_blocks = sizes_of(*table)[1];
  const auto& [num_rows, num_heads, num_queries, _] = a.query.sizes;
  const int64_t width = a.value.sizes[3];
  const int64_t sizes[] = {num_rows, num_heads, num_queries, width};
  const int64_t strides[] = {num_queries * num_heads * width, width, num_heads * width, 1};
  check(aoti_torch_empty_strided(
      4, sizes, strides, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, result));
  a.result = data_of<float>(*result);
  const int64_t num_slots = a.num_blocks * a.key.sizes[2], group = num_heads / a.key.sizes[1];
  const int64_t per_task = std::max<int64_t>(num_slots * group * num_queries * (a.key.sizes[3] + width), 1);
  check(torch_parallel_for(0, num_rows * a.key.sizes[1], 1 + kGrain / per_task, run_tasks<Element>, &a));
}

} // namespace neuron_host

// Keys and values are both float32, bfloat16, int8, or float8 e4m3, of any strides; queries are float32.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_block_attention(
    AtenTensorHandle query,
    AtenTensorHandle key,
    AtenTensorHandle value,
    AtenTensorHandle* key_scale,
    AtenTensorHandle* value_scale,
    AtenTensorHandle* table,
    AtenTensorHandle mask,
    double scale,
    AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const int32_t dtype = dtype_of(key);
    auto function = run<uint16_t>;
    if (dtype == aoti_torch_dtype_float32()) function = run<float>;
    if (dtype == aoti_torch_dtype_int8()) function = run<int8_t>;
    if (dtype == aoti_torch_dtype_float8_e4m3fn()) function = run<Float8>;
    function(query, key, value, key_scale, value_scale, table, mask, scale, result);
  });
}
