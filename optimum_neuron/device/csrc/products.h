// Matrix products of float32 by oneDNN, where Python chose it (device/products.py) and they are large enough.
//
// torch gives float32 products to its BLAS. oneDNN it reaches by an operator of its own, x @ weight.T + bias, which
// copies `x` where it is not contiguous, takes a weight in rows or in columns, and a bias only if it is contiguous.
#pragma once
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <algorithm>
#include <atomic>

namespace neuron {

constexpr c10::DispatchKeySet kOnCpu(c10::DispatchKey::CPU);

enum class Product { kOther, kMm, kMmOut, kAddmm, kAddmmOut };

inline Product product_of(const c10::OperatorName& name) {
  bool out = name.overload_name == "out";
  if (!out && !name.overload_name.empty()) return Product::kOther;
  if (name.name == "aten::mm") return out ? Product::kMmOut : Product::kMm;
  if (name.name == "aten::addmm") return out ? Product::kAddmmOut : Product::kAddmm;
  return Product::kOther;
}

// From which size on oneDNN multiplies; with `num_multiplications` 0 it never does.
struct ByOneDnn {
  std::atomic<int64_t> num_multiplications{0}, shortest_side{0};
};

inline ByOneDnn by_onednn;

inline bool in_rows_or_columns(const at::Tensor& matrix) {
  auto rows = [&](int64_t down, int64_t along) {
    return matrix.stride(along) == 1 && matrix.stride(down) >= matrix.size(along);
  };
  return rows(0, 1) || rows(1, 0);
}

inline bool suits_onednn(const at::Tensor& left_MK, const at::Tensor& right_KN) {
  int64_t least = by_onednn.num_multiplications.load(std::memory_order_relaxed);
  if (least == 0 || left_MK.scalar_type() != at::kFloat || right_KN.scalar_type() != at::kFloat) return false;
  if (left_MK.dim() != 2 || right_KN.dim() != 2 || left_MK.size(1) != right_KN.size(0)) return false;
  int64_t m = left_MK.size(0), k = left_MK.size(1), n = right_KN.size(1);
  return std::min({m, k, n}) >= by_onednn.shortest_side && m * k * n >= least && in_rows_or_columns(right_KN) &&
      at::globalContext().userEnabledMkldnn();
}

inline bool is_one(const c10::IValue& number) {
  return number.toScalar().equal(1);
}

inline bool is_bias_for(const at::Tensor& bias, const at::Tensor& right_KN) {
  return bias.scalar_type() == at::kFloat && bias.dim() == 1 && bias.size(0) == right_KN.size(1) &&
      bias.is_contiguous();
}

// A result of another size or type is the CPU's to resize or refuse.
inline bool fits(const at::Tensor& out, const at::Tensor& left_MK, const at::Tensor& right_KN) {
  return out.scalar_type() == at::kFloat && out.dim() == 2 && out.size(0) == left_MK.size(0) &&
      out.size(1) == right_KN.size(1);
}

// The product of arguments on the CPU in place of them, or false where the CPU's own kernel is to compute it.
inline bool multiply(Product product, torch::jit::Stack* stack) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Linear = at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view, Scalars,
      std::optional<c10::string_view>);
  bool biased = product == Product::kAddmm || product == Product::kAddmmOut;
  bool writes = product == Product::kMmOut || product == Product::kAddmmOut;
  size_t num_arguments = 2 + (biased ? 3 : 0) + (writes ? 1 : 0); // (bias,) left, right (, beta, alpha) (, out)
  const c10::IValue* arguments = &(*stack)[stack->size() - num_arguments];
  at::Tensor left = arguments[biased].toTensor(), right = arguments[biased + 1].toTensor();
  if (!suits_onednn(left, right)) return false;
  std::optional<at::Tensor> bias;
  if (biased) {
    bias = arguments[0].toTensor();
    if (!is_bias_for(*bias, right) || !is_one(arguments[3]) || !is_one(arguments[4])) return false;
  }
  if (writes && !fits(arguments[num_arguments - 1].toTensor(), left, right)) return false;

  static const auto linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Linear>();
  at::Tensor result = linear.redispatch(kOnCpu, left, right.t(), bias, "none", Scalars(), "");
  if (writes) {
    at::Tensor out = arguments[num_arguments - 1].toTensor();
    result = out.copy_(result);
  }
  torch::jit::drop(*stack, num_arguments);
  stack->emplace_back(std::move(result));
  return true;
}

// Run an operator whose arguments are on the CPU.
inline void run_on_cpu(const c10::OperatorHandle& op, Product product, torch::jit::Stack* stack) {
  if (product == Product::kOther || !multiply(product, stack)) op.redispatchBoxed(kOnCpu, stack);
}

} // namespace neuron
