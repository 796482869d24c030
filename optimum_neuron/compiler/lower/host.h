// Helpers of generated host code: tensors that a function borrows, buffers on the stack, errors, and the loop that
// calls functions one after the other. `unit.py` includes it once in each file that it writes.

#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/inductor/cpp_prefix.h>

#include <c10/util/generic_math.h>
#include <torch/csrc/inductor/aoti_runtime/scalar_to_tensor.h>
#include <torch/csrc/inductor/aoti_runtime/utils.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include "experts.h"

using namespace torch::aot_inductor;

namespace {

// An argument: the caller keeps it. Its address is asked for only where a kernel reads it, as packed weights have none.
class Argument {
 public:
  explicit Argument(AtenTensorHandle handle) : handle_(handle) {}
  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  void reset() {}
  void* data_ptr() const {
    void* address;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle_, &address));
    return address;
  }

 private:
  AtenTensorHandle handle_;
};

// An intermediate result that only kernels see.
template <typename T>
struct StackBuffer {
  T* elements;
  void* data_ptr() const { return elements; }
  StackBuffer at(int64_t offset) const { return {elements + offset}; }
  void reset() {}
};

thread_local std::string message_of_last_error;

[[maybe_unused]] int32_t fail(const char* message) {
  message_of_last_error = message;
  return 1;
}

// Operators of ATen that write into a given tensor refuse arguments that require a gradient.
struct NoGrad {
  bool before = aoti_torch_grad_mode_is_enabled();
  NoGrad() { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before); }
};

}  // namespace

extern "C" const char* last_error() { return message_of_last_error.c_str(); }

// One call of a graph. `slots` has the values that it takes, those that it returns, and those that nobody needs then.
struct Step {
  int32_t (*function)(AtenTensorHandle* arguments, AtenTensorHandle* results);
  const char* (*last_error)(); // of its library, for the thread that called it
  const int32_t* slots;
  int32_t num_arguments;
  int32_t num_results;
  int32_t num_unused;
  int32_t num_abreast; // steps from this one on that do not depend on each other
};

namespace {

// Returns whether the step failed.
bool run_step(const Step& step, AtenTensorHandle* values) {
  thread_local std::vector<AtenTensorHandle> arguments, results;
  const int32_t* slots = step.slots;
  arguments.clear();
  for (int32_t i = 0; i < step.num_arguments; ++i) arguments.push_back(values[*slots++]);
  results.assign(step.num_results, nullptr);
  if (step.function(arguments.data(), results.data())) return true;
  for (AtenTensorHandle result : results) values[*slots++] = result;
  return false;
}

// Runs independent steps. Returns 0 or the number of one that failed, counted from 1. Each step has a thread to itself if
// that occupies all threads; otherwise, all threads share each step.
[[maybe_unused]] int32_t run_abreast(const Step* steps, int32_t num_steps, AtenTensorHandle* values) {
  const int32_t num_threads = omp_get_max_threads();
  int32_t failed = 0;
  if (num_steps == 1 || num_threads == 1 || (num_steps % num_threads != 0 && num_steps < 4 * num_threads)) {
    for (int32_t i = 0; i < num_steps && !failed; ++i) failed = run_step(steps[i], values) ? i + 1 : 0;
    if (failed) fail(steps[failed - 1].last_error());
    return failed;
  }
  std::string message;
#pragma omp parallel
  {
    const NoGrad no_grad;
#pragma omp for schedule(dynamic)
    for (int32_t i = 0; i < num_steps; ++i)
      if (run_step(steps[i], values)) {
#pragma omp critical
        failed = i + 1, message = steps[i].last_error();
      }
  }
  if (failed) fail(message.c_str());
  return failed;
}

}  // namespace

// Deletes values and forgets them; those that are absent are null.
extern "C" void release(AtenTensorHandle* values, int32_t num_values) {
  for (int32_t i = 0; i < num_values; ++i) {
    if (values[i]) aoti_torch_delete_tensor_object(values[i]);
    values[i] = nullptr;
  }
}

// Returns 0, or the number of the step that failed, counted from 1; this library has the message.
extern "C" int32_t run_steps(const Step* steps, int32_t num_steps, AtenTensorHandle* values) {
  const NoGrad no_grad;
  for (int32_t index = 0; index < num_steps; index += steps[index].num_abreast) {
    const int32_t end = index + steps[index].num_abreast;
    if (int32_t failed = run_abreast(steps + index, end - index, values)) return index + failed;
    for (const Step* step = steps + index; step < steps + end; ++step) {
      const int32_t* unused = step->slots + step->num_arguments + step->num_results;
      for (int32_t i = 0; i < step->num_unused; ++i) release(&values[unused[i]], 1);
    }
  }
  return 0;
}
