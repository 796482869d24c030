// Adaptive Eager Execution: operators wait in a queue of their core, and a thread of the queue runs them in order.
//
// Operators that compute element by element gather in a run, which is handed over as one; any other operator is a run
// of its own. Runs end by what the program calls, never by time, so statistics repeat. Each operator is still the CPU's
// kernel on the same bytes, with the settings of the thread that called it. Whoever needs the bytes calls `settle`
// first.
//
// Queues are never destroyed: their threads wait until the process ends.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <array>
#include <cfenv>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include "census.h"
#include "host.h"
#include "products.h"

namespace neuron {

constexpr size_t kLongestRun = 64; // operators
constexpr uint64_t kMostWaiting = 1024; // operators; who calls one more waits

// An operator with its arguments on the CPU.
struct Waiting {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  Product product;
  std::fenv_t arithmetic{}; // rounding and denormals belong to a thread
  int num_threads = at::get_num_threads(); // as does this, which decides where loops are cut

  Waiting(c10::OperatorHandle op, torch::jit::Stack arguments, Product product = Product::kOther)
      : op(op), arguments(std::move(arguments)), product(product) {
    std::fegetenv(&arithmetic);
  }
};

using Run = std::vector<Waiting>;

struct EagerStatistics {
  std::map<std::string, int64_t> runs; // by the names of their operators
  std::map<std::string, int64_t> flushes; // by what asked
};

class Queue {
 public:
  explicit Queue(DeviceIndex device) : device_(device) {}

  // Let an operator wait. `fusible` ones join the run before them.
  void push(Waiting waiting, bool fusible) {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return submitted_ - completed_ < kMostWaiting; });
    if (!fusible) close();
    open_.push_back(std::move(waiting));
    submitted_++;
    if (!fusible || open_.size() == kLongestRun) close();
  }

  // Wait for all that was submitted before, and raise the first error among it.
  void settle(const std::string& reason) {
    OutsideInterpreter outside; // left before the lock is taken, and entered after it is given back
    std::unique_lock<std::mutex> lock(mutex_);
    if (submitted_ != flushed_) statistics_.flushes[reason]++;
    drain(lock);
    if (C10_UNLIKELY(error_ != nullptr)) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    drain(lock);
  }

  bool idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return submitted_ == completed_;
  }

  EagerStatistics statistics() {
    std::unique_lock<std::mutex> lock(mutex_);
    drain(lock);
    return statistics_;
  }

  void reset_statistics() {
    std::lock_guard<std::mutex> lock(mutex_);
    statistics_ = {};
  }

  // For a fork: nothing may be under way in it. Errors are kept.
  void hold() {
    std::unique_lock<std::mutex> lock(mutex_);
    drain(lock);
    lock.release();
  }
  void release() { mutex_.unlock(); }

 private:
  void close() {
    if (open_.empty()) return;
    ready_.push_back(std::exchange(open_, {}));
    if (!std::exchange(started_, true)) std::thread([this] { work(); }).detach();
    work_.notify_one();
  }

  void drain(std::unique_lock<std::mutex>& lock) {
    close();
    uint64_t last = flushed_ = submitted_;
    done_.wait(lock, [&] { return completed_ >= last; });
  }

  void work() {
    at::AutoDispatchBelowADInplaceOrView guard;
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      work_.wait(lock, [this] { return !ready_.empty(); });
      Run run = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      std::string names;
      std::exception_ptr error;
      for (Waiting& waiting : run) {
        names += (names.empty() ? "" : " ") + waiting.op.schema().name();
        std::exception_ptr failed = call(waiting);
        if (error == nullptr) error = failed;
      }
      size_t num_operators = run.size();
      run.clear(); // tensors are freed before anyone who waits goes on
      lock.lock();
      statistics_.runs[names]++;
      if (error_ == nullptr) error_ = error;
      completed_ += num_operators;
      done_.notify_all();
    }
  }

  std::exception_ptr call(Waiting& waiting) {
    try {
      std::fesetenv(&waiting.arithmetic);
      if (at::get_num_threads() != waiting.num_threads) at::set_num_threads(waiting.num_threads);
      torch::jit::Stack& stack = waiting.arguments;
      auto arguments = [&] { return c10::ArrayRef<c10::IValue>(stack); };
      counting(waiting.op, device_, arguments, [&] { run_on_cpu(waiting.op, waiting.product, &stack); });
      return nullptr;
    } catch (c10::Error& error) {
      error.add_context(c10::str("while running ", waiting.op.schema().name(), " on ", kDeviceName, ", which had been queued"));
      return std::current_exception();
    } catch (...) {
      return std::current_exception();
    }
  }

  const DeviceIndex device_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  Run open_;
  std::deque<Run> ready_;
  uint64_t submitted_ = 0, completed_ = 0, flushed_ = 0; // operators
  bool started_ = false;
  std::exception_ptr error_;
  EagerStatistics statistics_;
};

struct AdaptiveEager {
  std::atomic<bool> enabled{false};
  std::atomic<bool> used{false}; // was enabled at some time, so queues may hold something
  std::mutex mutex; // guards the making of queues
  std::array<std::atomic<Queue*>, kMaxDevices> queues{};
};

inline AdaptiveEager& adaptive_eager() {
  static auto* state = new AdaptiveEager;
  return *state;
}

inline AdaptiveEager& adaptive = adaptive_eager();

inline Queue& queue_of(DeviceIndex device) {
  Queue* queue = adaptive.queues[device];
  if (C10_LIKELY(queue != nullptr)) return *queue;
  std::lock_guard<std::mutex> lock(adaptive.mutex);
  if (adaptive.queues[device] == nullptr) adaptive.queues[device] = new Queue(device);
  return *adaptive.queues[device];
}

inline bool may_be_queued() {
  return C10_UNLIKELY(adaptive.used.load(std::memory_order_relaxed));
}

// Before bytes of a core are read or written by anything but its queue.
inline void settle(DeviceIndex device, const std::string& reason) {
  if (!may_be_queued() || device < 0) return;
  if (Queue* queue = adaptive.queues[device]) queue->settle(reason);
}

inline void settle_all(const std::string& reason) {
  if (!may_be_queued()) return;
  for (int device = 0; device < kMaxDevices; device++) settle(static_cast<DeviceIndex>(device), reason);
}

inline bool is_idle(DeviceIndex device) {
  Queue* queue = adaptive.queues[device];
  return queue == nullptr || queue->idle();
}

inline void hold_queues() {
  adaptive.mutex.lock();
  for (auto& queue : adaptive.queues)
    if (queue != nullptr) queue.load()->hold();
}

inline void release_queues() {
  for (auto& queue : adaptive.queues)
    if (queue != nullptr) queue.load()->release();
  adaptive.mutex.unlock();
}

// A forked child has no threads of its parent: it leaves the queues where they are, and queues nothing.
inline void abandon_queues() {
  adaptive.enabled = adaptive.used = false;
  for (auto& queue : adaptive.queues) queue = nullptr;
  adaptive.mutex.unlock();
}

} // namespace neuron
