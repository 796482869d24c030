// Census of eager operators, while somebody watches: what was called with which shapes, and when.
//
// An operator is known by its name, the dtypes and sizes of its tensors, and its other arguments, as JSON; values of
// floating-point arguments, which change no shape, count as one. Python takes the calls and prices each kind of them once
// (device/census.py). Unwatched, an operator costs the look at one flag.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <pthread.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace neuron {

constexpr size_t kMostEvents = 1 << 20; // that wait for Python; later ones are counted as lost

// One call; times are those of Python's `time.perf_counter_ns`, the thread that of `threading.get_ident`.
struct CensusEvent {
  int64_t kind, device, thread, begin_ns, end_ns;
};

class Census {
 public:
  std::atomic<bool> watched{false};

  void add(const std::string& kind, CensusEvent event) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (events_.size() == kMostEvents) {
      num_lost_++;
      return;
    }
    auto [found, is_new] = numbers_.try_emplace(kind, static_cast<int64_t>(kinds_.size()));
    if (is_new) kinds_.push_back(kind);
    event.kind = found->second;
    events_.push_back(event);
  }

  int64_t take(CensusEvent* events, int64_t most) {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t count = std::min(most, static_cast<int64_t>(events_.size()));
    std::copy_n(events_.begin(), count, events);
    events_.erase(events_.begin(), events_.begin() + count);
    return count;
  }

  int64_t take_lost() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(num_lost_, 0);
  }

  // It stays where it is for as long as the process lives.
  const char* kind(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    return kinds_.at(number).c_str();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> numbers_;
  std::deque<std::string> kinds_;
  std::deque<CensusEvent> events_;
  int64_t num_lost_ = 0;
};

// Never destroyed: threads of queues may call operators until the process ends.
inline Census*& census_of_process() {
  static auto* census = new Census;
  return census;
}

inline bool is_watched() {
  return C10_UNLIKELY(census_of_process()->watched.load(std::memory_order_relaxed));
}

inline int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

inline void describe(const c10::IValue& value, bool exact, std::string& text);

template <class Items, class Describe>
void describe_items(const Items& items, std::string& text, const Describe& describe_item) {
  text += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) text += ',';
    describe_item(item);
  }
  text += ']';
}

inline void describe_tensor(const at::Tensor& tensor, std::string& text) {
  if (!tensor.defined()) {
    text += "null";
    return;
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) { // a number of the program, whatever its value
    text += tensor.is_floating_point() ? "1.0" : tensor.scalar_type() == at::kBool ? "true" : "1";
    return;
  }
  auto add = [&](int64_t number) { text += std::to_string(number); };
  text += "{\"dtype\":\"";
  text += c10::getDtypeNames(tensor.scalar_type()).first;
  text += "\",\"size\":";
  describe_items(tensor.sizes(), text, add);
  text += ",\"stride\":";
  describe_items(tensor.strides(), text, add);
  text += '}';
}

inline void describe(const c10::IValue& value, bool exact, std::string& text) {
  if (value.isTensor()) return describe_tensor(value.toTensor(), text);
  if (value.isBool()) {
    text += value.toBool() ? "true" : "false";
  } else if (value.isInt()) {
    text += std::to_string(value.toInt());
  } else if (value.isDouble()) {
    double number = value.toDouble();
    text += exact && std::isfinite(number) ? std::to_string(number) : "1.0";
  } else if (value.isString()) {
    text += '"' + value.toStringRef() + '"';
  } else if (value.isList()) {
    describe_items(value.toListRef(), text, [&](const c10::IValue& item) { describe(item, exact, text); });
  } else {
    text += "null"; // generators and devices, of which no shape depends
  }
}

inline std::string kind_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& name = op.operator_name();
  bool exact = name.name == "aten::arange";
  std::string text = "[\"" + name.name + "\",\"" + name.overload_name + "\",";
  describe_items(arguments, text, [&](const c10::IValue& value) { describe(value, exact, text); });
  return text + ']';
}

// Run an operator of a device (-1: of none), and count it if somebody watches and it ends well.
template <class Arguments, class Call>
void counting(const c10::OperatorHandle& op, int64_t device, const Arguments& arguments, const Call& call) {
  if (C10_LIKELY(!is_watched()) || device < 0) return call();
  std::string kind = kind_of(op, arguments());
  int64_t begin_ns = now_ns();
  call();
  census_of_process()->add(kind, {0, device, static_cast<int64_t>(pthread_self()), begin_ns, now_ns()});
}

} // namespace neuron
