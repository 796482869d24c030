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
  const int32_t* slots;
  int32_t num_arguments;
  int32_t num_results;
  int32_t num_unused;
};

// Deletes values and forgets them; those that are absent are null.
extern "C" void release(AtenTensorHandle* values, int32_t num_values) {
  for (int32_t i = 0; i < num_values; ++i) {
    if (values[i]) aoti_torch_delete_tensor_object(values[i]);
    values[i] = nullptr;
  }
}

// Returns 0, or the number of the step that failed, counted from 1; its library has the message.
extern "C" int32_t run_steps(const Step* steps, int32_t num_steps, AtenTensorHandle* values) {
  std::vector<AtenTensorHandle> arguments, results;
  const NoGrad no_grad;
  for (int32_t index = 0; index < num_steps; ++index) {
    const Step& step = steps[index];
    const int32_t* slots = step.slots;
    arguments.clear();
    for (int32_t i = 0; i < step.num_arguments; ++i) arguments.push_back(values[*slots++]);
    results.assign(step.num_results, nullptr);
    if (step.function(arguments.data(), results.data())) return index + 1;
    for (AtenTensorHandle result : results) values[*slots++] = result;
    for (int32_t i = 0; i < step.num_unused; ++i) release(&values[*slots++], 1);
  }
  return 0;
}
