// The torch device "xla": the device "neuron" for the dispatch key XLA, in a shared object of its own.
//
// It has the same cores, and charges the same HBM (`Host::meters`).
//
//   hooks.h      torch's generic entry points       attention.h       which attention kernel runs
//   loss.h       numbers of classes in any dtype    downcast.h        floats in the precision of bfloat16
//   recorder.h   the graph between two syncs        recorded_call.h   one operator on it
#define NEURON_AS_XLA
#include "../exports.h"
#include "../registration.h"
#include "attention.h"
#include "hooks.h"
#include "loss.h"

namespace neuron {

void register_everything() {
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  register_hooks();
  auto above_autograd = [](torch::Library& aten) {
    aten.impl("nll_loss_nd", &nll_loss_nd);
    aten.impl("scaled_dot_product_attention", &attention);
  };
  register_device(above_autograd);
  above_autograd(library(Kind::IMPL, "aten", Key::AutogradXLA));
}

} // namespace neuron

#pragma GCC visibility push(default)
extern "C" {

// Begin to record, with what Python does on events.
void xla_connect(const neuron::Listeners* listeners) {
  neuron::listeners = *listeners;
  neuron::recording = true;
}

// The meters of the cores from xla:0 on, in a fork that has other cores.
void xla_set_meters(neuron::Meter* meters) {
  neuron::meters = meters;
}

// 0: no rounding; 1: floats to bfloat16; 2: float64 to float32, float32 to bfloat16.
void xla_set_downcast(int kind) {
  neuron::downcast = static_cast<neuron::Downcast>(kind);
}

// Operators of the graph that goes on.
int64_t xla_num_pending() {
  return neuron::recorder().num_pending();
}

// End the graph; its results may become zeros, as where graphs are extracted and not run.
void xla_close(neuron::Closed* closed, int zeros) {
  *closed = neuron::recorder().close([&](neuron::StorageRecord* record) {
    auto* block = static_cast<neuron::Block*>(record);
    if (zeros) std::memset(block->twin.mutable_data(), 0, static_cast<size_t>(block->size_bytes));
  });
}

// The tape of the graph that ended last, until the next one ends.
const int64_t* xla_tape() {
  return neuron::recorder().tape();
}

// Kind, bytes, whether it is alive, whether it was written, and the number of its shape, of a slot of that graph.
void xla_slot(int64_t slot, int64_t* state) {
  const neuron::SlotState& found = neuron::recorder().slot_at(slot);
  state[0] = static_cast<int64_t>(found.kind), state[1] = found.size_bytes;
  state[2] = found.record != nullptr, state[3] = found.written, state[4] = found.shape;
}

const char* xla_string(int64_t number) {
  return neuron::recorder().string_at(number);
}

int64_t xla_num_operators() {
  return neuron::recorder().num_operators();
}

const char* xla_operator_name(int64_t number) {
  return neuron::recorder().operator_at(number).name.c_str();
}

int64_t xla_operator_calls(int64_t number) {
  return neuron::recorder().operator_at(number).calls;
}

// Calls that read values on the host.
int64_t xla_operator_reads(int64_t number) {
  return neuron::recorder().operator_at(number).reads;
}

void xla_reset_calls() {
  auto& recorder = neuron::recorder();
  for (int64_t number = 0; number < recorder.num_operators(); number++)
    recorder.operator_at(number).calls = recorder.operator_at(number).reads = 0;
  neuron::num_before += neuron::num_created.exchange(0) - neuron::num_destroyed.exchange(0);
}

// Storages that were made and freed.
int64_t xla_num_created() {
  return neuron::num_created;
}
int64_t xla_num_destroyed() {
  return neuron::num_destroyed;
}

// Storages that are there.
int64_t xla_num_live() {
  return neuron::num_before + neuron::num_created - neuron::num_destroyed;
}

// Number and estimated time of the operators since the last call.
void xla_take_traced(int64_t* number, int64_t* took_ns) {
  *number = neuron::recorder().num_traced.exchange(0);
  *took_ns = neuron::recorder().traced_ns.exchange(0);
}

int xla_take_transfer(neuron::Transfer* transfer) {
  return neuron::recorder().take_transfer(transfer);
}

}
#pragma GCC visibility pop
