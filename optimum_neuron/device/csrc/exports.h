// The C functions of the shared object, which Python calls through ctypes (device/library.py).
#pragma once
#include "guard.h"
#include "python_ops.h"

namespace neuron {

void register_everything(); // neuron.cpp, or xla/xla.cpp

// A fork waits until nothing is in the midst of a change that the child would find half made.
inline void before_fork() {
  record_fork(true);
  hold_queues();
  pages().hold();
}

inline void after_fork() {
  pages().let_go();
  release_queues();
  record_fork(false);
}

// A forked child has none of its parent's cores: whatever it charges first claims, and claiming refuses.
inline void begin_child() {
  pages().let_go();
  abandon_queues();
  record_fork(false);
  census_of_process() = new Census; // another thread may have been in the midst of adding to the parent's
  if (host.meters != nullptr) return; // whose they are resets them
  for (int device = 0; device < kMaxDevices; device++) meters[device].claimed = false;
}

} // namespace neuron

#pragma GCC visibility push(default)
extern "C" {

// Register the device; an empty string, or what went wrong. (An exception in a static initializer would end the
// process.)
const char* neuron_load(const neuron::Host* host) {
  try {
    neuron::host = *host;
    if (host->meters != nullptr) neuron::meters = host->meters;
    neuron::register_everything();
    pthread_atfork(&neuron::before_fork, &neuron::after_fork, &neuron::begin_child);
    neuron::refusal.clear();
  } catch (const std::exception& error) {
    neuron::refusal = error.what();
  }
  return neuron::refusal.c_str();
}

void neuron_refuse(const char* reason) {
  neuron::refusal = reason;
}

int64_t neuron_current_device() {
  return neuron::current_device_of_thread; // -1: not chosen yet
}

void neuron_set_device(int64_t device) {
  neuron::current_device_of_thread = static_cast<c10::DeviceIndex>(device);
}

// The meters of the cores from one core on, for another device of the same cores.
neuron::Meter* neuron_meters(int64_t device) {
  return neuron::meters + device;
}

// Bytes of device tensors on a core.
int64_t neuron_used_bytes(int64_t device) {
  return neuron::meters[device].used;
}

void neuron_set_limit(int64_t device, int64_t size_bytes) {
  neuron::meters[device].limit = size_bytes;
}

void neuron_seed_all(uint64_t seed) {
  for (int device = 0; device < neuron::kMaxDevices; device++)
    neuron::default_generator(static_cast<c10::DeviceIndex>(device)).set_current_seed(seed);
}

// Milliseconds between two recorded events, given by their `event_id`.
double neuron_elapsed_ms(int64_t start, int64_t end) {
  return neuron::elapsed_ms(reinterpret_cast<neuron::Event*>(start), reinterpret_cast<neuron::Event*>(end));
}

// Whether operators are counted.
void neuron_watch_operators(int watched) {
  neuron::census_of_process()->watched = watched != 0;
}

// Move at most so many of the counted calls into `events`; returns how many. The rest stays.
int64_t neuron_take_operators(neuron::CensusEvent* events, int64_t most) {
  return neuron::census_of_process()->take(events, most);
}

// Calls that were not counted since the last look, because nobody took those before them.
int64_t neuron_take_lost_operators() {
  return neuron::census_of_process()->take_lost();
}

// What was called, of a number in an event: ["aten::mm","",[arguments]].
const char* neuron_operator_kind(int64_t kind) {
  return neuron::census_of_process()->kind(kind);
}

// Whether operators may wait in queues. What waits already is left there.
void neuron_set_adaptive_eager(int enabled) {
  if (enabled) neuron::adaptive.used = true;
  neuron::adaptive.enabled = enabled != 0;
}

int neuron_adaptive_eager() {
  return neuron::adaptive.enabled;
}

// Wait for all queues; errors stay there for the next synchronization.
void neuron_drain_queues() {
  for (auto& queue : neuron::adaptive.queues)
    if (queue != nullptr) queue.load()->drain();
}

// Lines of a kind ("run" or "flush"), a count, and names, with a space between them.
const char* neuron_eager_statistics(int64_t device) {
  static thread_local std::string lines;
  lines.clear();
  if (neuron::Queue* queue = neuron::adaptive.queues[device]) {
    auto statistics = queue->statistics();
    for (const auto& [names, count] : statistics.runs) lines += c10::str("run ", count, " ", names, "\n");
    for (const auto& [reason, count] : statistics.flushes) lines += c10::str("flush ", count, " ", reason, "\n");
  }
  return lines.c_str();
}

void neuron_reset_eager_statistics(int64_t device) {
  if (neuron::Queue* queue = neuron::adaptive.queues[device]) queue->reset_statistics();
}

// Whether what this thread allocates on the CPU becomes device tensors; returns what was so before.
int neuron_set_for_device(int is_so) {
  return std::exchange(neuron::computes_for_device, is_so != 0);
}

// From which size on oneDNN computes products of float32; 0 multiplications: never.
void neuron_set_products(int64_t num_multiplications, int64_t shortest_side) {
  neuron::by_onednn.num_multiplications = num_multiplications;
  neuron::by_onednn.shortest_side = shortest_side;
}

void neuron_set_numerics(int emulated, int operand, int stochastic, uint64_t seed) {
  neuron::numerics.operand = static_cast<neuron::Operand>(operand);
  neuron::numerics.stochastic = stochastic != 0;
  neuron::numerics.seed = seed;
  neuron::numerics.draws = 0;
  neuron::numerics.emulated = emulated != 0;
}

}
#pragma GCC visibility pop
