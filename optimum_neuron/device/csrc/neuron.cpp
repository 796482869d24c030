// The torch device "neuron": host memory behind the dispatch key PrivateUse1, computed by the CPU's kernels.
//
// One translation unit, compiled once for each torch on the user's machine (device/build.py). It includes no Python
// header and is loaded with ctypes; Python reaches it through the C functions below and the operators of
// `python_ops.h`.
//
//   host.h        what is asked of Python: cores and limits    pinned.h      pinned host memory
//   queue.h, deferral.h   Adaptive Eager Execution: what waits to run, and which operators may
//   pages.h       large blocks of the host, for reuse          generator.h   random numbers
//   memory.h      storages, their CPU twins, HBM counted       guard.h       devices, streams, events
//   aliases.h     device tensors as CPU tensors and back       hooks.h       torch's generic entry points
//   fallback.h    the one kernel for nearly every operator     autocast.h    torch.autocast
//   kernels.h     operators with a kernel of their own         cells.h       cells of LSTM and GRU
//   attention.h   which attention kernel runs                  grouped.h     grouped products of FP8
//   census.h      eager operators, counted while somebody watches
//   rounding.h, emulation.h   the emulated numerics            python_ops.h  operators that Python calls
//   products.h    products of float32 by oneDNN                lanes.h       lanes of cores in torch.profiler
#include "attention.h"
#include "autocast.h"
#include "cells.h"
#include "grouped.h"
#include "hooks.h"
#include "kernels.h"
#include "lanes.h"
#include "python_ops.h"

namespace neuron {
namespace {

using Kind = torch::Library::Kind;
using Key = c10::DispatchKey;

// Registrations last until the process ends: tensors of the device may be freed that late.
torch::Library& library(Kind kind, const char* name, std::optional<Key> key) {
  return *new torch::Library(kind, name, key, __FILE__, __LINE__);
}

// torch warns where a kernel replaces another one, which is the point here.
struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void register_everything() {
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  c10::SetAllocator(kNeuron, &allocator);
  allocate_for_device();
  static NeuronGuard neuron_guard;
  c10::impl::DeviceGuardImplRegistrar registrar(kNeuron, &neuron_guard);
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks);
  at::setHostAllocator(kNeuron, &pinned_allocator);
  torch::profiler::impl::registerPrivateUse1Methods(new NeuronProfiler);
  register_lanes();

  library(Kind::IMPL, "_", Key::PrivateUse1).fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  auto& aten = library(Kind::IMPL, "aten", Key::PrivateUse1);
  register_kernels(aten);
  register_cells(aten);
  register_grouped(aten);
  register_grouped(library(Kind::IMPL, "aten", Key::CPU)); // for compiled graphs, whose tensors are the host's
  aten.impl("_fused_sdp_choice", &fused_sdp_choice);
  register_operators(aten);
  register_collectives(library(Kind::IMPL, "c10d", Key::PrivateUse1));

  library(Kind::IMPL, "_", Key::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library(Kind::IMPL, "aten", Key::AutocastPrivateUse1));
  // Resolving these bits copies through `_copy_from`, which would resolve them again without end.
  for (Key key : {Key::Conjugate, Key::Negative})
    library(Kind::IMPL, "aten", key).impl("_copy_from", torch::CppFunction::makeFallthrough());

  define_python_ops(library(Kind::DEF, "neuron_sim", std::nullopt));
  implement_python_ops(library(Kind::IMPL, "neuron_sim", Key::CompositeExplicitAutograd));
  for (Key key : {Key::Autograd, Key::ADInplaceOrView}) fall_through(library(Kind::IMPL, "neuron_sim", key));
}

// A fork waits until nothing is in the midst of a change that the child would find half made.
void before_fork() {
  hold_queues();
  pages().hold();
}

void after_fork() {
  pages().let_go();
  release_queues();
}

// A forked child has none of its parent's cores: whatever it charges first claims, and claiming refuses.
void begin_child() {
  pages().let_go();
  abandon_queues();
  census_of_process() = new Census; // another thread may have been in the midst of adding to the parent's
  for (Meter& meter : meters) meter.claimed = false;
}

} // namespace
} // namespace neuron

#pragma GCC visibility push(default)
extern "C" {

// Register the device; an empty string, or what went wrong. (An exception in a static initializer would end the
// process.)
const char* neuron_load(const neuron::Host* host) {
  try {
    neuron::host = *host;
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

// Bytes of device tensors on a core.
int64_t neuron_used_bytes(int64_t device) {
  return neuron::meters[device].used;
}

// One event of the profile that is being stopped in this thread; times in nanoseconds since the epoch.
void neuron_add_lane_event(int is_call, const char* name, int core, int64_t begin_ns, int64_t end_ns) {
  neuron::add_lane_event(is_call != 0, name, core, begin_ns, end_ns);
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
