// Large blocks of host memory for what the device computes: pages that one tensor gave back are the next one's.
//
// The C library gives large blocks back to the kernel, which fills the pages of the next one with zeros; of smaller
// ones its heap keeps what lies between blocks in use. Here ranges of pages are split and joined, and no more of
// them are kept than blocks took at their peak, but for parts of huge pages. It knows nothing of tensors.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace neuron {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
// Where malloc begins to ask the kernel for each block (mallopt(3), M_MMAP_THRESHOLD).
constexpr size_t kLargeBlock = size_t{128} << 10;
// What may be kept beyond the peak: the last huge page is seldom full.
constexpr size_t kSlack = 4 * kHugePage;

class Pages {
 public:
  // A block, or null where the host has none.
  void* take(size_t size_bytes) {
    size_t size = round_up(size_bytes, kPage);
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = by_size_.lower_bound({size, 0});
    if (found == by_size_.end()) {
      if (!grow(size)) return nullptr;
      found = by_size_.lower_bound({size, 0});
    }
    // Its end: what is left may be joined with what the kernel gives next, which is below as a rule.
    auto [range_size, range] = *found;
    forget(range, range_size);
    if (range_size > size) remember(range, range_size - size);
    uintptr_t start = range + range_size - size;
    taken_.emplace(start, size);
    used_ += size;
    peak_ = std::max(peak_, used_);
    return reinterpret_cast<void*>(start);
  }

  // False for a block that is not from here.
  bool give_back(void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(reinterpret_cast<uintptr_t>(block));
    if (found == taken_.end()) return false;
    used_ -= found->second;
    join(found->first, found->second);
    taken_.erase(found);
    return true;
  }

  // Give the kernel what no block is in.
  void trim() {
    std::lock_guard<std::mutex> lock(mutex_);
    release(free_, kPage);
    peak_ = used_;
  }

  void hold() { mutex_.lock(); }
  void let_go() { mutex_.unlock(); }

 private:
  static size_t round_down(size_t size, size_t multiple) { return size / multiple * multiple; }
  static size_t round_up(size_t size, size_t multiple) { return round_down(size + multiple - 1, multiple); }

  // Pages of which a block of this size can be taken; what is free and too small makes room for them.
  bool grow(size_t size) {
    size_t room = kSlack + (peak_ > used_ + size ? peak_ - used_ - size : 0);
    if (free_ > room) release(free_ - room, kHugePage);
    size_t wanted = round_up(size, kHugePage), mapped_size = wanted + kHugePage;
    void* mapped = mmap(nullptr, mapped_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return false;
    // Huge pages begin at multiples of their size.
    auto first = reinterpret_cast<uintptr_t>(mapped), end = first + mapped_size;
    uintptr_t start = round_down(end - wanted, kHugePage);
    if (start > first) unmap(first, start - first);
    if (end > start + wanted) unmap(start + wanted, end - start - wanted);
    madvise(reinterpret_cast<void*>(start), wanted, MADV_HUGEPAGE);
    join(start, wanted);
    return true;
  }

  // Whole pages of a size, of the largest ranges first: of a huge page in parts the kernel would keep all.
  void release(size_t size, size_t page) {
    std::vector<std::pair<uintptr_t, size_t>> ranges;
    for (auto range = by_size_.rbegin(); range != by_size_.rend(); range++)
      ranges.emplace_back(range->second, range->first);
    size_t left = round_up(size, page);
    for (auto [start, range_size] : ranges) {
      uintptr_t first = round_up(start, page), end = round_down(start + range_size, page);
      if (left == 0) return;
      if (first >= end) continue;
      uintptr_t from = std::max(first, end - std::min(left, end - first));
      forget(start, range_size);
      unmap(from, end - from);
      if (from > start) remember(start, from - start);
      if (start + range_size > end) remember(end, start + range_size - end);
      left -= end - from;
    }
  }

  static void unmap(uintptr_t start, size_t size) { munmap(reinterpret_cast<void*>(start), size); }

  // Remember a range as one with those beside it.
  void join(uintptr_t start, size_t size) {
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
  }

  void remember(uintptr_t start, size_t size) {
    by_start_.emplace(start, size);
    by_size_.emplace(size, start);
    free_ += size;
  }

  void forget(uintptr_t start, size_t size) {
    by_start_.erase(start);
    by_size_.erase({size, start});
    free_ -= size;
  }

  std::mutex mutex_;
  std::map<uintptr_t, size_t> by_start_; // ranges that are free
  std::set<std::pair<size_t, uintptr_t>> by_size_; // the same
  std::unordered_map<uintptr_t, size_t> taken_;
  size_t used_ = 0, free_ = 0, peak_ = 0;
};

// Never destroyed: tensors may outlive static destructors.
inline Pages& pages() {
  static auto* pages = new Pages;
  return *pages;
}

// What allocated on the CPU before this device came.
inline c10::Allocator* former_allocator = nullptr;

inline void free_host(void* block) {
  if (block == nullptr) return;
  if (pages().give_back(block))
    c10::profiledCPUMemoryReporter().Delete(block);
  else
    former_allocator->raw_deallocate(block);
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

// In place of the former allocator, which it is but for that.
struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size_bytes) override {
    if (!computes_for_device || size_bytes < kLargeBlock) return former_allocator->allocate(size_bytes);
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
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

// For good: others allocate later than static destructors run.
inline void allocate_for_device() {
  former_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new HostAllocator, 1);
}

} // namespace neuron
