// Operators that PyTorch/XLA has no lowering for: it runs them on the host, which ends the graph that computes their
// arguments, and counts them under their own names ("aten::median").
//
// These are ATen's operators that have a kernel for the CPU, none that is composed of others, and no row in
// codegen/xla_native_functions.yaml of PyTorch/XLA 2.9. Left out are views, sparse, nested and quantized tensors, and
// kernels that only the CPU's composites choose.
#pragma once
#include <ATen/core/function_schema.h>
#include <set>
#include <string>

namespace neuron {

inline const std::set<std::string>& host_operators() {
  static const auto* names = new std::set<std::string>{
      // order, counts
      "_cummax_helper", "_cummin_helper", "_unique", "_unique2", "aminmax", "_aminmax", "bincount", "bucketize", "histc",
      "histogram", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "isin",
      "median", "mode", "nanmedian", "nansum", "searchsorted", "unique_consecutive", "unique_dim",
      "unique_dim_consecutive",
      // functions of one or two numbers
      "angle", "copysign", "digamma", "exp2", "fmax", "fmin", "gcd", "heaviside", "hypot", "i0", "igamma", "igammac",
      "isposinf", "lcm", "lgamma", "_logcumsumexp", "logaddexp", "logaddexp2", "nextafter", "polygamma", "signbit",
      "sinc",
      // matrices
      "_cholesky_solve_helper", "_linalg_det", "_linalg_eigvals", "_linalg_solve_ex", "addbmm", "cholesky_inverse",
      "geqrf", "linalg_cholesky_ex", "linalg_cross", "linalg_eig", "linalg_householder_product",
      "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve",
      "linalg_matrix_exp", "linalg_qr", "linalg_solve_triangular", "lu_unpack", "ormqr", "renorm", "tril_indices",
      "triu_indices", "vdot",
      // signals and images
      "_fft_c2c", "_fft_c2r", "_fft_r2c", "_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward",
      "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward", "_upsample_nearest_exact1d",
      "_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d", "_upsample_nearest_exact2d_backward",
      "_upsample_nearest_exact3d", "_upsample_nearest_exact3d_backward", "adaptive_max_pool3d",
      "adaptive_max_pool3d_backward", "channel_shuffle", "col2im", "fractional_max_pool2d",
      "fractional_max_pool2d_backward", "fractional_max_pool3d", "fractional_max_pool3d_backward", "grid_sampler_2d",
      "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "im2col", "unfold_backward",
      "upsample_bicubic2d", "upsample_bicubic2d_backward", "upsample_linear1d", "upsample_linear1d_backward",
      "upsample_nearest1d", "upsample_nearest1d_backward", "upsample_nearest3d", "upsample_nearest3d_backward",
      "upsample_trilinear3d", "upsample_trilinear3d_backward",
      // losses, layers
      "_cdist_backward", "_ctc_loss", "_ctc_loss_backward", "_embedding_bag", "_embedding_bag_dense_backward",
      "_embedding_bag_per_sample_weights_backward", "_pdist_backward", "embedding_renorm", "glu_backward",
      "huber_loss", "logit_backward", "multi_margin_loss", "multi_margin_loss_backward",
      "multilabel_margin_loss_backward", "multilabel_margin_loss_forward",
      // random numbers
      "_dirichlet_grad", "_sample_dirichlet", "_standard_gamma", "_standard_gamma_grad", "binomial", "cauchy",
      "geometric", "log_normal", "poisson",
      // rows by index
      "_segment_reduce_backward", "index_reduce", "nonzero_static", "repeat_interleave", "segment_reduce"};
  return *names;
}

// Whether an operator runs on the host: those above with their writing forms, special functions, and kernels for the
// CPU of other libraries, such as torchvision's.
inline bool runs_on_host(const c10::FunctionSchema& schema) {
  static const auto* lowered = new std::set<std::string>{
      "_c10d_functional", "c10d", "neuron", "neuron_host", "prims", "profiler", "xla"};
  const std::string& full = schema.name();
  size_t colons = full.find("::");
  std::string space = full.substr(0, colons), name = full.substr(colons + 2);
  if (space != "aten") return lowered->count(space) == 0;
  if (name.rfind("special_", 0) == 0 || host_operators().count(name) > 0) return true;
  return name.back() == '_' && host_operators().count(name.substr(0, name.size() - 1)) > 0;
}

} // namespace neuron
