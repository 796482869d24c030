// A vector register of the target, with the vector extension of GCC and Clang.
#pragma once
#include <cstdint>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace neuron_host {

// What is indexed in these loops has to stay in registers.
#define UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / sizeof(float);

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef int32_t Integers __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2), aligned(alignof(uint16_t)), may_alias));
typedef int8_t SignedBytes __attribute__((vector_size(kVectorBytes / 4), aligned(alignof(int8_t)), may_alias));
typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(float)), may_alias));

constexpr int64_t divide_up(int64_t number, int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

constexpr int64_t round_up(int64_t number, int64_t multiple) {
  return divide_up(number, multiple) * multiple;
}

inline Vector load(const float* from) {
  return *reinterpret_cast<const Unaligned*>(from);
}

// Numbers in bfloat16.
inline Vector load(const uint16_t* from) {
  return reinterpret_cast<Vector>(__builtin_convertvector(*reinterpret_cast<const Halves*>(from), Integers) << 16);
}

// Integers of 8 bits.
inline Vector load(const int8_t* from) {
#if defined(__AVX512F__)
  // GCC 12 makes four conversions of the one below.
  const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return reinterpret_cast<Vector>(_mm512_cvtepi32_ps(wide));
#elif defined(__AVX2__)
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  return reinterpret_cast<Vector>(_mm256_cvtepi32_ps(wide));
#else
  return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const SignedBytes*>(from), Integers), Vector);
#endif
}

// A float8 e4m3, without infinities. Read as the half with these bits, it is kUnit times smaller; NaN stays NaN.
struct Float8 {
  uint8_t bits;
};

inline uint16_t half_of(Float8 number) {
  const uint16_t sign = (number.bits & 0x80) << 8, rest = number.bits & 0x7f;
  return sign | (rest == 0x7f ? 0x7e00 : rest << 7);
}

inline float one(const Float8* from) {
  return static_cast<float>(__builtin_bit_cast(_Float16, half_of(*from)));
}

inline Vector load(const Float8* from) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bits), 7); // with the sign on top, and below it
  const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
  const __mmask16 is_nan = _mm_cmpeq_epi8_mask(_mm_or_si128(bits, _mm_set1_epi8(-0x80)), _mm_set1_epi8(-1));
  return reinterpret_cast<Vector>(_mm512_cvtph_ps(_mm256_mask_mov_epi16(half, is_nan, _mm256_set1_epi16(0x7e00))));
#elif defined(__AVX2__) && defined(__F16C__)
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(bits), 7);
  const __m128i half = _mm_and_si128(wide, _mm_set1_epi16(static_cast<int16_t>(0xbfff)));
  const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(half, _mm_set1_epi16(0x3f80)), _mm_set1_epi16(0x3f80));
  return reinterpret_cast<Vector>(_mm256_cvtph_ps(_mm_or_si128(half, _mm_and_si128(is_nan, _mm_set1_epi16(0x7e00)))));
#else
  Vector vector;
  for (int lane = 0; lane < kLanes; lane++) vector[lane] = one(from + lane);
  return vector;
#endif
}

// What numbers of a type are multiplied by once they are read.
template <class Element>
constexpr float kUnit = 1.0f;
template <>
inline constexpr float kUnit<Float8> = 256.0f;

inline void store(float* to, Vector vector) {
  *reinterpret_cast<Unaligned*>(to) = vector;
}

// Rounded to bfloat16, to even where two are as near; NaN stays NaN.
inline void store(uint16_t* to, Vector vector) {
  const Integers bits = reinterpret_cast<Integers>(vector);
  const Integers rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  *reinterpret_cast<Halves*>(to) = __builtin_convertvector(vector == vector ? rounded : 0x7fc0 + Integers{}, Halves);
}

inline float one(const float* from) {
  return *from;
}

inline float one(const int8_t* from) {
  return *from;
}

inline float one(const uint16_t* from) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(*from) << 16);
}

inline float sum(Vector vector) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(vector));
#else
  float total = 0.0f;
  UNROLL for (int lane = 0; lane < kLanes; lane++) total += vector[lane];
  return total;
#endif
}

} // namespace neuron_host
