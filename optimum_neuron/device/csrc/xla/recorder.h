// The graph of a step: what PyTorch/XLA would trace between two syncs, as a tape of whole numbers.
//
// Operators are written as they are called: their number, arguments and results. A tensor is a slot, which is the number
// of its storage within the graph, with dtype, sizes, strides and offset; since a slot is written in the order of the
// tape, reads and writes of it are the data flow. No address is on the tape. Numbers of the program are data, which the
// hash leaves out, but for 0, 1 and -1; shapes, dtypes and attributes are hashed. Views are on the tape and not in the
// hash, for the tensors that are used say where they lie.
//
// Python reads the tape of a graph whose hash is new (optimum_neuron/xla/recording.py).
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Storage.h>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>
#include "../device_type.h"
#include "host_operators.h"

namespace neuron {

enum Word : int64_t { // what follows on the tape; recording.py has the same numbers
  kOperator, // number of the operator, place where it was first called so
  kNone,
  kTensor, // slot, dtype, offset, number of dimensions, sizes, strides
  kHostTensor, // the same without slot and offset
  kInteger,
  kBool,
  kFloat, // bits
  kIntegerData, // numbers of the program
  kFloatData, // bits
  kList, // length
  kString, // number of the string
  kOpaque, // a process group, a generator
  kResults, // of the operator before
};

enum class Slot : int64_t { kInput, kEmpty, kComputed };

inline std::atomic<int64_t> graph_number{1};

// Storages, and those that were there when these counters began.
inline std::atomic<int64_t> num_created{0}, num_destroyed{0}, num_before{0};

// Beside each storage of the device.
struct StorageRecord {
  StorageRecord() { num_created.fetch_add(1, std::memory_order_relaxed); }
  int64_t born = graph_number.load(std::memory_order_relaxed); // graph in which it was allocated; 0: has data
  int64_t graph = 0; // graph in which it has a slot
  int64_t slot = -1;
  int64_t shape = -1;
};

struct SlotState {
  Slot kind;
  int64_t size_bytes;
  StorageRecord* record; // null once it is freed, and for storages of others
  bool written;
  int64_t shape; // number of the text of its sizes, as the host gave them; -1 unknown
};

struct Closed { // a graph that ended; the layout is that of recording.py
  int64_t hash_high, hash_low, num_operators, num_inputs, num_outputs, num_aliased, input_bytes, output_bytes;
  int64_t began_ns, ended_ns, num_words, num_slots;
};

struct Transfer { // one copy between host and device
  int64_t to_device, size_bytes, took_ns;
};

inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

inline uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ULL; // FNV-1a
  for (unsigned char letter : text) hash = (hash ^ letter) * 0x100000001b3ULL;
  return hash;
}

inline int64_t clock_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// What Python does, set by `xla_connect`; -1 refuses, with its reason in `refusal`.
struct Listeners {
  int64_t (*read)(int64_t operator_number); // a value is read on the host: the graph so far ends
  int64_t (*placed)(int64_t operator_number); // first call of this kind: the number of its place in the program
  int64_t (*grew)(int64_t num_operators); // a graph is long
};

inline Listeners listeners{};
inline std::atomic<bool> recording{false};

constexpr int64_t kLongGraph = 1 << 16; // operators; told each time it doubles
constexpr uint32_t kTimedEach = 16;
constexpr size_t kMostTransfers = 1 << 12;

struct KnownOperator {
  std::string name;
  uint64_t hash;
  std::atomic<int64_t> calls{0}, reads{0}; // on the device, and of values on the host
};

class Recorder {
 public:
  int64_t number_of(const c10::OperatorName& name) {
    std::string full = c10::toString(name);
    std::lock_guard<std::mutex> lock(mutex_);
    auto [found, is_new] = numbers_.try_emplace(full, static_cast<int64_t>(operators_.size()));
    if (is_new) {
      operators_.emplace_back();
      operators_.back().name = full;
      operators_.back().hash = hash_of(full);
    }
    return found->second;
  }
  KnownOperator& operator_at(int64_t number) { return operators_[number]; } // a deque: they stay where they are
  int64_t num_operators() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int64_t>(operators_.size());
  }

  // The slot of a storage of the device, new in this graph or not.
  int64_t slot_of(StorageRecord* record, int64_t size_bytes, bool computed) {
    if (C10_LIKELY(record != nullptr && record->graph == graph_number.load(std::memory_order_relaxed)))
      return record->slot;
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t graph = graph_number.load(std::memory_order_relaxed);
    Slot kind = computed ? Slot::kComputed : record != nullptr && record->born == graph ? Slot::kEmpty : Slot::kInput;
    auto slot = static_cast<int64_t>(slots_.size());
    slots_.push_back({kind, size_bytes, record, computed, record == nullptr ? -1 : record->shape});
    if (kind != Slot::kComputed) add(mixed(static_cast<uint64_t>(kind), size_bytes), 0);
    if (record != nullptr) record->graph = graph, record->slot = slot;
    return slot;
  }

  int64_t string(const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [found, is_new] = string_numbers_.try_emplace(text, static_cast<int64_t>(strings_.size()));
    if (is_new) strings_.push_back(text);
    return found->second;
  }
  const char* string_at(int64_t number) { return strings_.at(number).c_str(); }

  void know(uint64_t kind, int64_t place) {
    std::lock_guard<std::mutex> lock(mutex_);
    places_.emplace(kind, place);
  }

  // Append an operator; returns how many the graph has, or -1 where the place of its kind is not known.
  int64_t append(
      int64_t* words, size_t num_words, const std::vector<int64_t>& written, uint64_t hash, uint64_t kind) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto place = places_.find(kind);
    if (C10_UNLIKELY(place == places_.end())) return -1;
    words[2] = place->second;
    tape_.insert(tape_.end(), words, words + num_words);
    for (int64_t slot : written) slots_[slot].written = true;
    if (hash == 0) return 0; // a view
    add(hash, kind);
    if (num_in_graph_++ == 0) began_ns_ = clock_ns();
    return num_in_graph_;
  }

  // Whether a value that is read now was computed in this graph.
  bool is_pending(const StorageRecord* record) {
    std::lock_guard<std::mutex> lock(mutex_);
    return record->graph == graph_number && slots_[record->slot].written;
  }

  void died(const StorageRecord& record) noexcept {
    if (record.graph != graph_number.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (record.graph == graph_number) slots_[record.slot].record = nullptr;
  }

  // A storage got new memory, with a record of its own.
  void moved(StorageRecord* from, StorageRecord* to) {
    std::lock_guard<std::mutex> lock(mutex_);
    *to = *from;
    from->graph = 0;
    if (to->graph == graph_number) slots_[to->slot].record = to;
  }

  // End the graph; its tape stays for Python until the next one ends. `result` is called with each of its results.
  template <class Result>
  Closed close(const Result& result) {
    std::lock_guard<std::mutex> lock(mutex_);
    Closed closed{};
    for (size_t slot = 0; slot < slots_.size(); slot++) {
      const SlotState& state = slots_[slot];
      bool input = state.kind == Slot::kInput, output = state.written && state.record != nullptr;
      closed.num_inputs += input;
      closed.num_outputs += output;
      closed.num_aliased += input && output;
      closed.input_bytes += input ? state.size_bytes : 0;
      closed.output_bytes += output ? state.size_bytes : 0;
      if (output) add(slot, 1), result(state.record);
    }
    closed.hash_high = static_cast<int64_t>(high_), closed.hash_low = static_cast<int64_t>(low_);
    closed.num_operators = num_in_graph_;
    closed.began_ns = began_ns_, closed.ended_ns = clock_ns();
    std::swap(closed_tape_, tape_);
    std::swap(closed_slots_, slots_);
    tape_.clear(), slots_.clear();
    closed.num_words = static_cast<int64_t>(closed_tape_.size());
    closed.num_slots = static_cast<int64_t>(closed_slots_.size());
    high_ = low_ = 0, num_in_graph_ = 0, began_ns_ = 0;
    graph_number++;
    return closed;
  }
  const int64_t* tape() { return closed_tape_.data(); }
  const SlotState& slot_at(int64_t slot) { return closed_slots_.at(slot); }
  int64_t num_pending() {
    std::lock_guard<std::mutex> lock(mutex_);
    return num_in_graph_;
  }

  void add_transfer(Transfer transfer) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (transfers_.size() == kMostTransfers) transfers_.pop_front();
    transfers_.push_back(transfer);
  }
  bool take_transfer(Transfer* transfer) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (transfers_.empty()) return false;
    *transfer = transfers_.front();
    transfers_.pop_front();
    return true;
  }

  // Time of operators from their arguments to their results: one of `kTimedEach` is timed.
  std::atomic<int64_t> num_traced{0}, traced_ns{0};

  void hold() { mutex_.lock(); }
  void release() { mutex_.unlock(); }

 private:
  void add(uint64_t hash, uint64_t kind) {
    high_ = mixed(high_ + 1, hash);
    low_ = mixed(low_ ^ hash, kind + num_in_graph_);
  }

  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> numbers_, string_numbers_;
  std::deque<KnownOperator> operators_;
  std::deque<std::string> strings_;
  std::unordered_map<uint64_t, int64_t> places_;
  std::vector<int64_t> tape_, closed_tape_;
  std::vector<SlotState> slots_, closed_slots_;
  std::deque<Transfer> transfers_;
  uint64_t high_ = 0, low_ = 0;
  int64_t num_in_graph_ = 0, began_ns_ = 0;
};

// Never destroyed: tensors may outlive static destructors.
inline Recorder& recorder() {
  static auto* recorder = new Recorder;
  return *recorder;
}

// What the recorder has to know of an operator.
struct OperatorRecord {
  explicit OperatorRecord(const c10::OperatorHandle& op) : number(recorder().number_of(op.operator_name())) {
    const auto& schema = op.schema();
    bool fused = schema.name().rfind("aten::_fused_", 0) == 0; // optimizers, whose learning rate changes
    for (const auto& argument : schema.arguments()) {
      std::string type = argument.type()->str();
      data.push_back(type.rfind("Scalar", 0) == 0 || (fused && type == "float"));
    }
    indexes = schema.name() == "aten::index" || schema.name() == "aten::_unsafe_index";
    reads = op.hasTag(at::Tag::data_dependent_output) || (op.hasTag(at::Tag::dynamic_output_shape) && !indexes) ||
        runs_on_host(schema);
  }
  int64_t number;
  std::vector<bool> data; // whether an argument is a number of the program
  bool reads = false; // it runs on the host, its result is there, or has a size that depends on values
  bool indexes = false; // the same, if an index is a mask
};

inline void record_death(const StorageRecord& record) noexcept {
  num_destroyed.fetch_add(1, std::memory_order_relaxed);
  recorder().died(record);
}

// A storage got values from the host: where it is used next, it is an input.
inline void record_transfer(StorageRecord* record, const at::Tensor& tensor, int64_t began_ns) {
  if (record != nullptr) {
    recorder().died(*record);
    record->born = 0, record->graph = 0;
    std::string sizes;
    for (int64_t size : tensor.sizes()) sizes += std::to_string(size) + ' ';
    record->shape = recorder().string(sizes);
  }
  recorder().num_traced.fetch_add(1, std::memory_order_relaxed);
  recorder().add_transfer({1, static_cast<int64_t>(tensor.nbytes()), clock_ns() - began_ns});
}

// A fork waits until nobody appends, and nobody does before it is over.
inline void record_fork(bool begins) {
  begins ? recorder().hold() : recorder().release();
}

// New memory of the same storage.
inline void record_moved(StorageRecord* from, StorageRecord* to) {
  if (from != nullptr && to != nullptr) recorder().moved(from, to);
}

} // namespace neuron
