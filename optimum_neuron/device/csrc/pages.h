// Large blocks of host memory for what the device computes: pages that one tensor gave back are the next one's.
//
// The heap of the C library gives large blocks back to the kernel, which fills the pages of the next one with zeros, and
// of smaller ones it keeps what lies between blocks that are in use. Here ranges of pages are split and joined, and there
// are never more of them than tensors took at their peak. It knows nothing of tensors.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

namespace neuron {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
// Where malloc begins to ask the kernel for each block (mallopt(3), M_MMAP_THRESHOLD).
constexpr size_t kLargeBlock = size_t{128} << 10;

inline size_t round_up(size_t size_bytes, size_t multiple) {
  return (size_bytes + multiple - 1) / multiple * multiple;
}

class Pages {
 public:
  // A block, or null where the host has none.
  void* take(size_t size_bytes) {
    size_t size = round_up(size_bytes, kPage);
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = by_size_.lower_bound({size, nullptr});
    if (found == by_size_.end() && !grow(size)) return nullptr;
    if (found == by_size_.end()) found = by_size_.lower_bound({size, nullptr});
    auto [range_size, start] = *found;
    forget(start, range_size);
    if (range_size > size) remember(start + size, range_size - size);
    used_ += size;
    peak_ = std::max(peak_, used_);
    taken_.emplace(start, size);
    return start;
  }

  // False for a block that is not from here.
  bool give_back(void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(static_cast<char*>(block));
    if (found == taken_.end()) return false;
    char* start = found->first;
    size_t size = found->second;
    taken_.erase(found);
    used_ -= size;
    auto after = by_start_.lower_bound(start);
    if (after != by_start_.end() && start + size == after->first) {
      size += after->second;
      forget(after->first, after->second);
    }
    auto before = by_start_.lower_bound(start);
    if (before != by_start_.begin() && (--before)->first + before->second == start) {
      start = before->first;
      size += before->second;
      forget(start, before->second);
    }
    remember(start, size);
    return true;
  }

  // Give the kernel what no block is in.
  void trim() {
    std::lock_guard<std::mutex> lock(mutex_);
    release(free_);
    peak_ = used_;
  }

  void hold() { mutex_.lock(); }
  void let_go() { mutex_.unlock(); }

 private:
  // Pages of which a block of this size can be taken; what is free and too small makes room for them.
  bool grow(size_t size) {
    size_t room = peak_ > used_ + size ? peak_ - used_ - size : 0;
    if (free_ > room) release(free_ - room);
    // A huge page has to begin at a multiple of its size.
    size_t wanted = round_up(size, kHugePage);
    void* mapped = mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return false;
    auto address = reinterpret_cast<uintptr_t>(mapped);
    size_t skipped = round_up(address, kHugePage) - address;
    char* start = static_cast<char*>(mapped) + skipped;
    if (skipped > 0) munmap(mapped, skipped);
    munmap(start + wanted, kHugePage - skipped);
    madvise(start, wanted, MADV_HUGEPAGE);
    remember(start, wanted);
    return true;
  }

  // Largest ranges first: they hold the fewest blocks apart.
  void release(size_t size_bytes) {
    for (size_t left = round_up(size_bytes, kPage); left > 0 && !by_size_.empty();) {
      auto [size, start] = *by_size_.rbegin();
      forget(start, size);
      size_t gone = std::min(size, left);
      munmap(start + size - gone, gone);
      if (size > gone) remember(start, size - gone);
      left -= gone;
    }
  }

  void remember(char* start, size_t size) {
    by_start_.emplace(start, size);
    by_size_.emplace(size, start);
    free_ += size;
  }

  void forget(char* start, size_t size) {
    by_start_.erase(start);
    by_size_.erase({size, start});
    free_ -= size;
  }

  std::mutex mutex_;
  std::map<char*, size_t> by_start_; // ranges that are free
  std::set<std::pair<size_t, char*>> by_size_; // the same
  std::unordered_map<char*, size_t> taken_;
  size_t used_ = 0, free_ = 0, peak_ = 0;
};

// Never destroyed: tensors may outlive static destructors.
inline Pages& pages() {
  static auto* pages = new Pages;
  return *pages;
}

inline void free_host(void* block) {
  if (block == nullptr) return;
  if (pages().give_back(block))
    c10::profiledCPUMemoryReporter().Delete(block);
  else
    c10::GetDefaultCPUAllocator()->raw_deallocate(block);
}

inline thread_local bool computes_for_device = false;

// While one lives, large blocks that this thread allocates on the CPU are from `pages`: they become device tensors.
class ForDevice {
 public:
  ForDevice() : before_(computes_for_device) { computes_for_device = true; }
  ~ForDevice() { computes_for_device = before_; }
  ForDevice(const ForDevice&) = delete;

 private:
  const bool before_;
};

// In place of torch's CPU allocator, which it is but for that.
struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size_bytes) override {
    if (!computes_for_device || size_bytes < kLargeBlock) return c10::GetDefaultCPUAllocator()->allocate(size_bytes);
    void* block = pages().take(size_bytes);
    if (block == nullptr) {
      pages().trim();
      block = pages().take(size_bytes);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "the host has no ", size_bytes, " bytes for a device tensor");
    c10::profiledCPUMemoryReporter().New(block, size_bytes);
    return c10::DataPtr(block, block, &free_host, c10::Device(c10::kCPU));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_host; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override { default_copy_data(to, from, size_bytes); }
};

inline HostAllocator host_allocator;

} // namespace neuron
