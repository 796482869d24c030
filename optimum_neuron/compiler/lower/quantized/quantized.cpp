// Products of few rows with a quantized weight: y = x @ (scale * (numbers - zero))^T + bias, in float32.
//
// A step of a decoder reads each weight once, so the numbers are converted in registers and memory is read at their own
// size. A task is a range of outputs; several outputs are summed side by side, because the sum of one waits for the
// adder. Layouts are those of weights/schemes.py.
//
// With VNNI, activations become fixed-point numbers of 15 or 16 bits with a scale for each 32 or 64 of them, and integers
// are multiplied (`fixed_point.h`).
//
// Inductor's code calls `aoti_torch_cpu_quantized_linear`. The threads are torch's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#include "../headers/registers.h"
#include "../headers/tensors.h"

namespace neuron_host {

constexpr int kRun = 32; // weights whose 4-bit numbers share 16 bytes
constexpr int kOutputs = 4; // summed side by side
constexpr int kAhead = 1024; // bytes of a row that memory is asked for before they are needed
constexpr int64_t kMaxRows = 4;
constexpr int64_t kGrainBytes = 1 << 16; // of weights, that are worth a thread

typedef int8_t Signed __attribute__((vector_size(kLanes)));
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

enum class Kind { kInt8, kFloat8, kInt4 };

struct Product {
  const float* x = nullptr;
  const uint8_t* values = nullptr;
  const void* scale = nullptr; // float; 16 bits of 4-bit numbers
  const uint8_t* zero = nullptr;
  const void* bias = nullptr;
  bool has_float_bias = true; // else bfloat16
  float* result = nullptr;
  int64_t num_rows = 0, num_inputs = 0, num_outputs = 0, num_groups = 0;
  const struct FixedPoint* fixed = nullptr; // x, where integers are multiplied
};

template <class T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

inline float half_to_float(uint16_t bits) {
#if defined(__AVX512F__) || defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  const uint32_t sign = (bits & 0x8000u) << 16;
  const float magnitude = std::ldexp(static_cast<float>((bits & 0x3ff) | ((bits & 0x7c00) ? 0x400 : 0)),
      std::max<int>((bits >> 10) & 31, 1) - 25);
  return sign ? -magnitude : magnitude;
#endif
}

// e4m3: its bits are those of a half with a smaller exponent, by 2^8; see `kFloat8Factor`.
constexpr float kFloat8Factor = 256.0f;

inline uint16_t half_of_float8(uint8_t byte) {
  return static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7);
}

template <Kind kind>
Vector decode(const uint8_t* from) {
  if constexpr (kind == Kind::kInt8) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return reinterpret_cast<Vector>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
#else
    return __builtin_convertvector(read<Signed>(from), Vector);
#endif
  } else {
#if defined(__AVX512BW__)
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i bits = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
    return reinterpret_cast<Vector>(_mm512_cvtph_ps(bits));
#else
    Vector vector;
    UNROLL for (int i = 0; i < kLanes; i++) vector[i] = half_to_float(half_of_float8(from[i]));
    return vector;
#endif
  }
}

template <Kind kind>
float decode_one(uint8_t byte) {
  return kind == Kind::kInt8 ? static_cast<float>(static_cast<int8_t>(byte)) : half_to_float(half_of_float8(byte));
}

// Sums over inputs [first, end) of a row of x for each of kOutputs rows of 8-bit numbers.
template <Kind kind, int num_rows>
void sum_group(const Product& p, const uint8_t* const* weights, int64_t row, int64_t first, int64_t end, float (*sums)[kOutputs]) {
  Vector totals[num_rows][kOutputs] = {};
  int64_t i = first;
  for (; i + kLanes <= end; i += kLanes) {
    Vector x[num_rows];
    UNROLL for (int r = 0; r < num_rows; r++) x[r] = load(p.x + (row + r) * p.num_inputs + i);
    UNROLL for (int o = 0; o < kOutputs; o++) {
      __builtin_prefetch(weights[o] + i + kAhead);
      const Vector weight = decode<kind>(weights[o] + i);
      UNROLL for (int r = 0; r < num_rows; r++) totals[r][o] += x[r] * weight;
    }
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) {
      float total = sum(totals[r][o]);
      for (int64_t k = i; k < end; k++) total += p.x[(row + r) * p.num_inputs + k] * decode_one<kind>(weights[o][k]);
      sums[r][o] = total;
    }
}

template <Kind kind, int num_rows>
void multiply8(const Product& p, int64_t row, const int64_t* outputs, float (*results)[kOutputs]) {
  const int64_t group = p.num_inputs / p.num_groups;
  const float* scale = static_cast<const float*>(p.scale);
  const uint8_t* weights[kOutputs];
  UNROLL for (int o = 0; o < kOutputs; o++) weights[o] = p.values + outputs[o] * p.num_inputs;
  for (int64_t g = 0; g < p.num_groups; g++) {
    float sums[num_rows][kOutputs];
    sum_group<kind, num_rows>(p, weights, row, g * group, (g + 1) * group, sums);
    UNROLL for (int r = 0; r < num_rows; r++)
      UNROLL for (int o = 0; o < kOutputs; o++) {
        const float factor = scale[outputs[o] * p.num_groups + g] * (kind == Kind::kFloat8 ? kFloat8Factor : 1.0f);
        results[r][o] += sums[r][o] * factor;
      }
  }
}

// Numbers 0 to 15 less their zero, of the low and the high halves of bytes.
inline void decode4(const uint8_t* from, Vector table, float zero, Vector& low, Vector& high) {
#if defined(__AVX512F__)
  // Only the low four bits of an index count.
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  low = reinterpret_cast<Vector>(_mm512_permutexvar_ps(wide, reinterpret_cast<__m512>(table)));
  high = reinterpret_cast<Vector>(_mm512_permutexvar_ps(_mm512_srli_epi32(wide, 4), reinterpret_cast<__m512>(table)));
#else
  const Integers wide = __builtin_convertvector(read<Bytes>(from), Integers);
  low = __builtin_convertvector(wide & 15, Vector) - zero;
  high = __builtin_convertvector(wide >> 4, Vector) - zero;
#endif
}

template <int num_rows>
void multiply4(const Product& p, int64_t row, const int64_t* outputs, float (*results)[kOutputs]) {
  const int64_t group = p.num_inputs / p.num_groups, num_bytes = p.num_inputs / 2;
  const uint16_t* scale = static_cast<const uint16_t*>(p.scale);
  Vector numbers;
  UNROLL for (int i = 0; i < kLanes; i++) numbers[i] = static_cast<float>(i);
  Vector totals[num_rows][kOutputs] = {};
  const uint8_t* from[kOutputs];
  UNROLL for (int o = 0; o < kOutputs; o++) from[o] = p.values + outputs[o] * num_bytes;
  const float* x = p.x + row * p.num_inputs;
  for (int64_t g = 0; g < p.num_groups; g++) {
    Vector sums[num_rows][kOutputs] = {}, tables[kOutputs];
    float zeros[kOutputs], factors[kOutputs];
    UNROLL for (int o = 0; o < kOutputs; o++) {
      const int64_t place = outputs[o] * p.num_groups + g;
      zeros[o] = p.zero ? p.zero[place] : 8.0f;
      tables[o] = numbers - zeros[o];
      factors[o] = half_to_float(scale[place]);
    }
    for (int64_t i = 0; i < group; i += kRun, x += kRun)
      UNROLL for (int half = 0; half < kRun / 2; half += kLanes)
        UNROLL for (int o = 0; o < kOutputs; o++) {
          Vector low, high;
          __builtin_prefetch(from[o] + kAhead);
          decode4(from[o], tables[o], zeros[o], low, high);
          from[o] += kLanes;
          UNROLL for (int r = 0; r < num_rows; r++) {
            sums[r][o] += load(x + r * p.num_inputs + half) * low;
            sums[r][o] += load(x + r * p.num_inputs + half + kRun / 2) * high;
          }
        }
    UNROLL for (int r = 0; r < num_rows; r++)
      UNROLL for (int o = 0; o < kOutputs; o++) totals[r][o] += sums[r][o] * factors[o];
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) results[r][o] = sum(totals[r][o]);
}

#if defined(__AVX512VNNI__)
#include "fixed_point.h"
#endif

float bias_of(const Product& p, int64_t output) {
  if (!p.bias) return 0.0f;
  if (p.has_float_bias) return static_cast<const float*>(p.bias)[output];
  return one(static_cast<const uint16_t*>(p.bias) + output);
}

template <Kind kind, int num_rows>
void run_rows(const Product& p, int64_t row, const int64_t* outputs) {
  float results[num_rows][kOutputs] = {};
#if defined(__AVX512VNNI__)
  if (kind == Kind::kInt8 && p.fixed)
    multiply8_fixed<num_rows>(p, row, outputs, results);
  else if (kind == Kind::kInt4)
    multiply4_fixed<num_rows>(p, row, outputs, results);
  else
#endif
  if constexpr (kind == Kind::kInt4)
    multiply4<num_rows>(p, row, outputs, results);
  else
    multiply8<kind, num_rows>(p, row, outputs, results);
  for (int r = 0; r < num_rows; r++)
    for (int o = 0; o < kOutputs; o++)
      p.result[(row + r) * p.num_outputs + outputs[o]] = results[r][o] + bias_of(p, outputs[o]);
}

template <Kind kind>
void run_range(int64_t begin, int64_t end, void* context) {
  const Product& p = *static_cast<const Product*>(context);
  const int64_t part = divide_up(end - begin, kOutputs);
  for (int64_t i = 0; i < part; i++) {
    int64_t outputs[kOutputs];
    // Each reads a part of the range from its beginning to its end; the last ones again where the parts are unequal.
    UNROLL for (int o = 0; o < kOutputs; o++) outputs[o] = std::min(begin + o * part + i, end - 1);
    for (int64_t row = 0; row < p.num_rows; row += kMaxRows) // further rows find the weights in the cache
      switch (std::min(p.num_rows - row, kMaxRows)) {
        case 1: run_rows<kind, 1>(p, row, outputs); break;
        case 2: run_rows<kind, 2>(p, row, outputs); break;
        case 3: run_rows<kind, 3>(p, row, outputs); break;
        default: run_rows<kind, 4>(p, row, outputs);
      }
  }
}

void multiply(Product& p, Kind kind) {
#if defined(__AVX512VNNI__)
  thread_local FixedPoint fixed;
  if (kind == Kind::kInt4)
    fixed.split(p), p.fixed = &fixed;
  else if (kind == Kind::kInt8 && p.num_groups == 1)
    fixed.round(p), p.fixed = &fixed;
#endif
  const int64_t row_bytes = kind == Kind::kInt4 ? p.num_inputs / 2 : p.num_inputs;
  const int64_t grain = std::max<int64_t>(kGrainBytes / std::max<int64_t>(row_bytes, 1) / kOutputs, 1) * kOutputs;
  auto run = kind == Kind::kInt8 ? run_range<Kind::kInt8> : kind == Kind::kFloat8 ? run_range<Kind::kFloat8> : run_range<Kind::kInt4>;
  check(torch_parallel_for(0, p.num_outputs, grain, run, &p));
}

} // namespace neuron_host

// `x` is contiguous; the result has its sizes with the outputs in place of the inputs.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_quantized_linear(
    AtenTensorHandle x,
    AtenTensorHandle values,
    AtenTensorHandle scale,
    AtenTensorHandle* zero,
    AtenTensorHandle* bias,
    AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const Rows rows(x);
    const int64_t *sizes = sizes_of(values), *scale_sizes = sizes_of(scale);
    const int32_t dtype = dtype_of(values);
    const Kind kind = dtype == aoti_torch_dtype_int8() ? Kind::kInt8
        : dtype == aoti_torch_dtype_uint8()            ? Kind::kInt4
                                                       : Kind::kFloat8;
    Product p;
    p.num_rows = rows.num_rows, p.num_inputs = rows.num_columns;
    p.num_outputs = sizes[0], p.num_groups = scale_sizes[1];
    if (sizes[1] * (kind == Kind::kInt4 ? 2 : 1) != p.num_inputs || scale_sizes[0] != p.num_outputs)
      throw std::invalid_argument("a weight has another number of inputs");
    p.x = data_of<const float>(x);
    p.values = data_of<const uint8_t>(values);
    p.scale = data_of<const void>(scale);
    if (zero) p.zero = data_of<const uint8_t>(*zero);
    if (bias) p.bias = data_of<const void>(*bias), p.has_float_bias = dtype_of(*bias) == aoti_torch_dtype_float32();
    *result = rows.allocate(p.num_outputs);
    p.result = data_of<float>(*result);
    multiply(p, kind);
  });
}
