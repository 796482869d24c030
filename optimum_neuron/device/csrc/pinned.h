// Pinned host memory: ordinary memory whose ranges are remembered, so that `is_pinned` is true where it should be.
#pragma once
#include <ATen/core/CachingHostAllocator.h>
#include <map>
#include <mutex>
#include "memory.h"

namespace neuron {

class PinnedRanges {
 public:
  void add(const void* start, size_t size_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(start)] = size_bytes;
  }
  void remove(const void* start) {
    std::lock_guard<std::mutex> lock(mutex_);
    ranges_.erase(reinterpret_cast<uintptr_t>(start));
  }
  bool contains(const void* pointer) {
    auto address = reinterpret_cast<uintptr_t>(pointer);
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return false;
    auto range = std::prev(next);
    return address < range->first + range->second;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, size_t> ranges_;
};

// Never destroyed: tensors may outlive static destructors.
inline PinnedRanges& pinned_ranges() {
  static auto* ranges = new PinnedRanges;
  return *ranges;
}

inline void unpin(void* context) {
  auto* data = static_cast<c10::DataPtr*>(context);
  pinned_ranges().remove(data->get());
  delete data;
}

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t size_bytes) override {
    size_bytes = std::max<size_t>(size_bytes, 1); // an empty tensor still is pinned
    auto* data = new c10::DataPtr(c10::GetCPUAllocator()->allocate(size_bytes));
    pinned_ranges().add(data->get(), size_bytes);
    return c10::DataPtr(data->get(), data, &unpin, Device(c10::DeviceType::CPU));
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override { std::memcpy(to, from, size_bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

inline PinnedAllocator pinned_allocator;

} // namespace neuron
