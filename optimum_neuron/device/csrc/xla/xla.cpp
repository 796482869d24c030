// The torch device "xla": the device "neuron" for the dispatch key XLA, in a shared object of its own.
//
// It has the same cores, and charges the same HBM (`Host::meters`).
//
//   hooks.h      torch's generic entry points       attention.h       which attention kernel runs
//   downcast.h   floats in the precision of bfloat16
//   recorder.h   the graph between two syncs        recorded_call.h   one operator on it
#define NEURON_AS_XLA
#include "../exports.h"
#include "../registration.h"
#include "attention.h"
#include "hooks.h"

namespace neuron {

void register_everything() {
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  register_hooks();
  register_device([](torch::Library& aten) { aten.impl("scaled_dot_product_attention", &attention); });
  library(Kind::IMPL, "aten", Key::AutogradXLA).impl("scaled_dot_product_attention", &attention);
}

} // namespace neuron

#pragma GCC visibility push(default)
extern "C" {

// Begin to record, with what Python does on events.
void xla_connect(const neuron::Listeners* listeners) {
  neuron::listeners = *listeners;
  neuron::recording = true;
}

// 0: no rounding; 1: floats to bfloat16; 2: float64 to float32, float32 to bfloat16.
void xla_set_downcast(int kind) {
  neuron::downcast = static_cast<neuron::Downcast>(kind);
}

// Operators of the graph that goes on.
int64_t xla_num_pending() {
  return neuron::recorder().num_pending();
}

void xla_close(neuron::Closed* closed) {
  *closed = neuron::recorder().close();
}

// The tape of the graph that ended last, until the next one ends.
const int64_t* xla_tape() {
  return neuron::recorder().tape();
}

// Kind, bytes, whether it is alive, whether it was written, and the number of its shape, of a slot of that graph.
void xla_slot(int64_t slot, int64_t* state) {
  const neuron::SlotState& found = neuron::recorder().slot_at(slot);
  state[0] = static_cast<int64_t>(found.kind), state[1] = found.size_bytes;
  state[2] = found.alive, state[3] = found.written, state[4] = found.shape;
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
  neuron::num_created = neuron::num_destroyed = 0;
}

// Storages that were made and freed.
int64_t xla_num_created() {
  return neuron::num_created;
}
int64_t xla_num_destroyed() {
  return neuron::num_destroyed;
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
