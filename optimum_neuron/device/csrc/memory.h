// Memory of simulated cores: host memory that is counted, with a limit for each core.
//
// Every storage of the device owns a twin: a CPU storage over the same bytes. Kernels of the CPU then work on aliases
// of device tensors without copies, and their own checks (overlap, resizing) see the identity of the storage.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <cstring>
#include "pages.h"
#include "queue.h"
#include "recording.h"

namespace neuron {

// Counters of one core. Relaxed: they are figures, not synchronization.
struct Meter {
  std::atomic<bool> claimed{false};
  std::atomic<int64_t> limit{0}, used{0}, peak{0}, live{0}, live_peak{0};
  std::atomic<int64_t> total{0}, total_freed{0}, num_allocations{0}, num_frees{0}, num_refused{0};
};

// Two devices of the same cores have the same meters.
inline Meter* meters = new Meter[kMaxDevices];

inline DeviceIndex checked(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count(), "invalid device index ", static_cast<int>(device));
  return device;
}

inline void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

inline void claim(DeviceIndex device) {
  int64_t limit = host.claim(device);
  if (limit < 0) refuse();
  meters[device].limit = limit;
  meters[device].claimed = true;
}

inline void charge(DeviceIndex device, int64_t size_bytes) {
  Meter& meter = meters[device];
  if (C10_UNLIKELY(!meter.claimed.load(std::memory_order_relaxed))) claim(device);
  int64_t used = meter.used.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes;
  if (C10_UNLIKELY(used > meter.limit.load(std::memory_order_relaxed))) {
    // Programs may have left the core since the limit was told.
    meter.limit = host.limit(device);
    if (used > meter.limit) {
      meter.used -= size_bytes;
      meter.num_refused++;
      host.out_of_memory(device, size_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, refusal);
    }
  }
  raise_to(meter.peak, used);
  raise_to(meter.live_peak, meter.live.fetch_add(1, std::memory_order_relaxed) + 1);
  meter.num_allocations.fetch_add(1, std::memory_order_relaxed);
  meter.total.fetch_add(size_bytes, std::memory_order_relaxed);
}

inline void discharge(DeviceIndex device, int64_t size_bytes) noexcept {
  Meter& meter = meters[device];
  meter.used.fetch_sub(size_bytes, std::memory_order_relaxed);
  meter.live.fetch_sub(1, std::memory_order_relaxed);
  meter.num_frees.fetch_add(1, std::memory_order_relaxed);
  meter.total_freed.fetch_add(size_bytes, std::memory_order_relaxed);
}

// What a device storage's DataPtr owns.
struct Block : StorageRecord {
  Block(c10::Storage twin, int64_t size_bytes, DeviceIndex device)
      : twin(std::move(twin)), size_bytes(size_bytes), device(device) {}
  c10::Storage twin;
  int64_t size_bytes;
  DeviceIndex device;
};

inline void delete_block(void* context) {
  auto* block = static_cast<Block*>(context);
  discharge(block->device, block->size_bytes);
  record_death(*block);
  delete block;
}

// Null for storages that others made over memory of their own (from_blob, DLPack).
inline Block* block_of(const c10::Storage& storage) {
  return storage.data_ptr().cast_context<Block>(&delete_block);
}

// Null for storages without a record.
inline StorageRecord* record_of(const c10::Storage& storage) {
  Block* block = block_of(storage);
  return block;
}

// Device memory over a CPU storage whose bytes are charged already.
inline c10::DataPtr own(c10::Storage twin, DeviceIndex device) {
  auto size_bytes = static_cast<int64_t>(twin.nbytes());
  void* data = const_cast<void*>(twin.data());
  return c10::DataPtr(data, new Block(std::move(twin), size_bytes, device), &delete_block, Device(kDeviceType, device));
}

// Make a CPU storage the twin of new device memory.
inline c10::DataPtr adopt(c10::Storage twin, DeviceIndex device) {
  charge(device, static_cast<int64_t>(twin.nbytes()));
  return own(std::move(twin), device);
}

inline c10::Storage new_twin(size_t size_bytes) {
  ForDevice scope;
  auto* cpu = c10::GetCPUAllocator();
  return c10::Storage(c10::Storage::use_byte_size_t(), size_bytes, cpu->allocate(size_bytes), cpu, true);
}

// Zeros that take no memory of the host before they are written: its kernel shows one page of zeros for all of them.
inline c10::Storage new_twin_of_zeros(size_t size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, data != MAP_FAILED, "the host has no ", size_bytes, " bytes for a device tensor");
  struct Mapping {
    void* data;
    size_t size_bytes;
  };
  auto unmap = [](void* context) {
    auto* mapping = static_cast<Mapping*>(context);
    munmap(mapping->data, mapping->size_bytes);
    delete mapping;
  };
  c10::DataPtr owner(data, new Mapping{data, size_bytes}, unmap, c10::Device(c10::kCPU));
  return c10::Storage(
      c10::Storage::use_byte_size_t(), size_bytes, std::move(owner), c10::GetCPUAllocator(), true);
}

struct NeuronAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size_bytes) override { return allocate_by(&new_twin, size_bytes); }
  c10::DataPtr allocate_by(c10::Storage (*make)(size_t), size_t size_bytes) {
    DeviceIndex device = current_device();
    // Charged first, so that the host never allocates what the core would not have.
    charge(device, static_cast<int64_t>(size_bytes));
    try {
      return own(make(size_bytes), device);
    } catch (...) {
      discharge(device, static_cast<int64_t>(size_bytes));
      throw;
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    settle_all("storage");
    std::memcpy(to, from, size_bytes);
  }
  bool initialized() override { return true; }
  // The host's heap too keeps what lay between blocks that are still in use.
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    pages().trim();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {} // work is done when a call returns

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    const Meter& meter = meters[checked(device)];
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto fill = [](auto& stat, int64_t now, int64_t peak, int64_t total, int64_t freed) {
      auto& all = stat[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      all.current = now, all.peak = peak, all.allocated = total, all.freed = freed;
    };
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
      fill(*stat, meter.used, meter.peak, meter.total, meter.total_freed);
    for (auto* stat : {&stats.allocation, &stats.active})
      fill(*stat, meter.live, meter.live_peak, meter.num_allocations, meter.num_frees);
    stats.num_ooms = meter.num_refused;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    Meter& meter = meters[checked(device)];
    for (auto* sum : {&meter.total, &meter.total_freed, &meter.num_allocations, &meter.num_frees, &meter.num_refused})
      *sum = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    Meter& meter = meters[checked(device)];
    meter.peak = meter.used.load();
    meter.live_peak = meter.live.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    Meter& meter = meters[checked(device)];
    if (!meter.claimed) claim(device);
    meter.limit = host.limit(device);
    return {meter.limit - meter.used, meter.limit};
  }
};

inline NeuronAllocator allocator;

struct ZerosAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size_bytes) override { return allocator.allocate_by(&new_twin_of_zeros, size_bytes); }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    allocator.copy_data(to, from, size_bytes);
  }
};

inline ZerosAllocator zeros_allocator;

// `UntypedStorage.resize_` of device storages.
inline void resize_storage(const c10::Storage& storage, size_t size_bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  settle(storage.device().index(), "storage");
  DeviceScope scope(storage.device().index());
  c10::DataPtr data = allocator.allocate(size_bytes);
  size_t kept = std::min(size_bytes, static_cast<size_t>(impl->nbytes()));
  if (kept > 0 && impl->data() != nullptr) std::memcpy(data.get(), impl->data(), kept);
  if (Block* block = block_of(storage)) record_moved(block, data.cast_context<Block>(&delete_block));
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(size_bytes);
}

} // namespace neuron
