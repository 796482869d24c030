// Products of integers: activations in fixed point, with a scale for each block of neighboring inputs.
//
// A block's largest activation takes all bits, so the others are rounded by less than 2^-14 of it; the rounding of
// weights to 8 bits is 2^-8. `quantized.cpp` includes it within its namespace.

constexpr int kBlock = 64; // inputs that share a scale, with numbers of 8 bits
constexpr int kChunk = 4 * kRun; // 4-bit numbers in 64 bytes

inline __m512 read_masked(const float* x, int64_t count) {
  return _mm512_maskz_loadu_ps(count >= kLanes ? 0xffff : count > 0 ? (1 << count) - 1 : 0, x);
}

// The largest magnitude of some vectors; NaN if one of their numbers is none.
template <int num_vectors>
float largest_of(const __m512 (&x)[num_vectors]) {
  __m512 largest = _mm512_setzero_ps(), zeros = _mm512_setzero_ps();
  UNROLL for (int i = 0; i < num_vectors; i++) {
    largest = _mm512_max_ps(largest, _mm512_abs_ps(x[i]));
    zeros = _mm512_fmadd_ps(x[i], _mm512_setzero_ps(), zeros);
  }
  return _mm512_reduce_max_ps(largest) + _mm512_reduce_add_ps(zeros);
}

inline __m512i rounded(__m512 x, float largest, float limit) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(largest > 0.0f ? limit / largest : 0.0f)));
}

struct FixedPoint {
  std::vector<int16_t> numbers; // [row][input], in whole blocks
  std::vector<int8_t> digits; // [row][chunk][4][64]: high and low digits of first halves of runs, then of second ones
  std::vector<int32_t> sums; // [row][chunk][16]: negative sums of the 8 activations of a lane
  std::vector<float> scales; // [row][block or run]
  int64_t num_blocks = 0; // or chunks

  // Of 16 bits, for weights of 8 bits.
  void round(const Product& p) {
    constexpr float kLargest = 32767.0f;
    num_blocks = (p.num_inputs + kBlock - 1) / kBlock;
    numbers.resize(p.num_rows * num_blocks * kBlock);
    scales.resize(p.num_rows * num_blocks);
    for (int64_t place = 0; place < p.num_rows * num_blocks; place++) {
      const int64_t first = place % num_blocks * kBlock;
      const float* from = p.x + place / num_blocks * p.num_inputs + first;
      __m512 x[kBlock / kLanes];
      UNROLL for (int i = 0; i < kBlock / kLanes; i++)
        x[i] = read_masked(from + i * kLanes, p.num_inputs - first - i * kLanes);
      const float largest = largest_of(x);
      auto* to = reinterpret_cast<__m256i*>(numbers.data() + place * kBlock);
      UNROLL for (int i = 0; i < kBlock / kLanes; i++)
        _mm256_storeu_si256(to + i, _mm512_cvtsepi32_epi16(rounded(x[i], largest, kLargest)));
      scales[place] = largest / kLargest;
    }
  }

  // Of two digits to the base 128, for weights of 4 bits.
  void split(const Product& p) {
    constexpr float kLargest = 127 * 128 + 63;
    const __m512i firsts = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    const int64_t num_runs = p.num_inputs / kRun;
    num_blocks = (p.num_inputs + kChunk - 1) / kChunk;
    digits.assign(p.num_rows * num_blocks * 4 * 64, 0);
    sums.assign(p.num_rows * num_blocks * 16, 0);
    scales.assign(p.num_rows * num_blocks * 4, 0.0f);
    for (int64_t row = 0; row < p.num_rows; row++)
      for (int64_t run = 0; run < num_runs; run++) {
        const float* from = p.x + row * p.num_inputs + run * kRun;
        const __m512 x[2] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + kLanes)};
        const float largest = largest_of(x);
        const int64_t place = (row * num_blocks + run / 4) * 4 + run % 4;
        scales[place] = largest / kLargest;
        __m512i total = _mm512_setzero_si512();
        for (int half = 0; half < 2; half++) {
          const __m512i number = rounded(x[half], largest, kLargest);
          const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(64)), 7);
          auto* to = reinterpret_cast<__m128i*>(digits.data() + place / 4 * 256 + half * 128 + run % 4 * 16);
          _mm_storeu_si128(to, _mm512_cvtepi32_epi8(high));
          _mm_storeu_si128(to + 4, _mm512_cvtepi32_epi8(_mm512_sub_epi32(number, _mm512_slli_epi32(high, 7))));
          total = _mm512_sub_epi32(total, number);
        }
        // The activations that four bytes of a lane meet.
        total = _mm512_add_epi32(total, _mm512_shuffle_epi32(total, _MM_PERM_CDAB));
        total = _mm512_add_epi32(total, _mm512_shuffle_epi32(total, _MM_PERM_BADC));
        const __m512i lanes = _mm512_permutexvar_epi32(firsts, total);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(sums.data() + place * 4), _mm512_castsi512_si128(lanes));
      }
  }
};

template <int num_rows>
void multiply8_fixed(const Product& p, int64_t row, const int64_t* outputs, float (*results)[kOutputs]) {
  const FixedPoint& fixed = *p.fixed;
  const uint8_t* weights[kOutputs];
  UNROLL for (int o = 0; o < kOutputs; o++) weights[o] = p.values + outputs[o] * p.num_inputs;
  __m512 totals[num_rows][kOutputs];
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) totals[r][o] = _mm512_setzero_ps();
  auto add = [&](int64_t b, auto read) {
    UNROLL for (int o = 0; o < kOutputs; o++) {
      const __m512i first = _mm512_cvtepi8_epi16(read(weights[o] + b * kBlock, 0));
      const __m512i second = _mm512_cvtepi8_epi16(read(weights[o] + b * kBlock, 1));
      __builtin_prefetch(weights[o] + b * kBlock + kAhead);
      UNROLL for (int r = 0; r < num_rows; r++) {
        const int64_t block = (row + r) * fixed.num_blocks + b;
        const int16_t* x = fixed.numbers.data() + block * kBlock;
        __m512i sum = _mm512_dpwssd_epi32(_mm512_setzero_si512(), first, _mm512_loadu_si512(x));
        sum = _mm512_dpwssd_epi32(sum, second, _mm512_loadu_si512(x + kBlock / 2));
        totals[r][o] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(fixed.scales[block]), totals[r][o]);
      }
    }
  };
  const int64_t num_whole = p.num_inputs / kBlock;
  for (int64_t b = 0; b < num_whole; b++)
    add(b, [](const uint8_t* from, int half) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half);
    });
  if (const int64_t rest = p.num_inputs % kBlock) {
    const uint64_t mask = (uint64_t{1} << rest) - 1;
    add(num_whole, [mask](const uint8_t* from, int half) {
      return _mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask >> (32 * half)), from + 32 * half);
    });
  }
  const float* scale = static_cast<const float*>(p.scale);
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) results[r][o] = _mm512_reduce_add_ps(totals[r][o]) * scale[outputs[o]];
}

// Values of the groups that four runs are in; those of runs that are absent do not matter, as their activations are zero.
template <class T>
int64_t of_runs(const T* groups, const int64_t* group_of) {
  const T values[4] = {groups[group_of[0]], groups[group_of[1]], groups[group_of[2]], groups[group_of[3]]};
  int64_t bits = 0;
  std::memcpy(&bits, values, sizeof(values));
  return bits;
}

template <int num_rows>
void multiply4_fixed(const Product& p, int64_t row, const int64_t* outputs, float (*results)[kOutputs]) {
  const FixedPoint& fixed = *p.fixed;
  const int64_t num_runs = p.num_inputs / kRun, runs = num_runs / p.num_groups;
  const __m512i lanes = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0), low = _mm512_set1_epi8(15);
  __m512 totals[num_rows][kOutputs];
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) totals[r][o] = _mm512_setzero_ps();
  for (int64_t chunk = 0; chunk < fixed.num_blocks; chunk++) {
    const int64_t first = chunk * 4, count = std::min<int64_t>(4, num_runs - first);
    int64_t group_of[4];
    UNROLL for (int i = 0; i < 4; i++) {
      const int64_t run = std::min(first + i, num_runs - 1);
      group_of[i] = runs == 1 ? run : static_cast<uint32_t>(run) / static_cast<uint32_t>(runs);
    }
    const __mmask64 mask = count == 4 ? ~uint64_t{0} : (uint64_t{1} << (16 * count)) - 1;
    UNROLL for (int o = 0; o < kOutputs; o++) {
      const uint8_t* from = p.values + outputs[o] * num_runs * 16 + chunk * 64;
      const uint16_t* scale = static_cast<const uint16_t*>(p.scale) + outputs[o] * p.num_groups;
      __builtin_prefetch(from + kAhead);
      const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from);
      const __m512i begin = _mm512_and_si512(bytes, low);
      const __m512i end = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low);
      const int64_t halves = runs == 1 && count == 4 ? read<int64_t>(reinterpret_cast<const uint8_t*>(scale + first))
                                                     : of_runs(scale, group_of);
      const __m128 factors = _mm_cvtph_ps(_mm_cvtsi64_si128(halves));
      __m512i zeros = _mm512_setzero_si512();
      if (p.zero) {
        const int64_t of_chunk = of_runs(p.zero + outputs[o] * p.num_groups, group_of);
        const __m128i wide = _mm_cvtepu8_epi32(_mm_cvtsi64_si128(of_chunk));
        zeros = _mm512_permutexvar_epi32(lanes, _mm512_castsi128_si512(wide));
      }
      UNROLL for (int r = 0; r < num_rows; r++) {
        const int64_t place = (row + r) * fixed.num_blocks + chunk;
        const int8_t* x = fixed.digits.data() + place * 256;
        const __m512i sums = _mm512_loadu_si512(fixed.sums.data() + place * 16);
        __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), begin, _mm512_loadu_si512(x));
        __m512i total = p.zero ? _mm512_mullo_epi32(sums, zeros) : _mm512_slli_epi32(sums, 3);
        total = _mm512_dpbusd_epi32(total, begin, _mm512_loadu_si512(x + 64));
        high = _mm512_dpbusd_epi32(high, end, _mm512_loadu_si512(x + 128));
        total = _mm512_dpbusd_epi32(total, end, _mm512_loadu_si512(x + 192));
        total = _mm512_add_epi32(total, _mm512_slli_epi32(high, 7));
        const __m128 products = _mm_mul_ps(factors, _mm_loadu_ps(fixed.scales.data() + place * 4));
        const __m512 factor = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(products));
        totals[r][o] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), factor, totals[r][o]);
      }
    }
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) results[r][o] = _mm512_reduce_add_ps(totals[r][o]);
}
