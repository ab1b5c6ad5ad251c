// Sixteen lanes as choosing a token needs them: sums in float64, and comparisons as bits.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

#if defined(__AVX512F__)

struct D {  // sums of lanes, in any order: for numbers whose sums are exact
    __m512d lo, hi;
};

inline D no_sum() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline D add_exactly(D sum, F a) {
    const __m256 low = _mm512_castps512_ps256(a.v), high = _mm512_extractf32x8_ps(a.v, 1);
    return {_mm512_add_pd(sum.lo, _mm512_cvtps_pd(low)),
            _mm512_add_pd(sum.hi, _mm512_cvtps_pd(high))};
}
inline double total(D sum) { return _mm512_reduce_add_pd(_mm512_add_pd(sum.lo, sum.hi)); }

// Bit i: whether it is so in lane i. NaN is at least nothing.
inline unsigned is_at_least(F a, F b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
inline unsigned is_nan(F a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }

#else

struct D {
    __m256d lo, hi;
};

inline D no_sum() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
inline __m256d add_eight(__m256d sum, __m256 a) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return _mm256_add_pd(sum, _mm256_add_pd(low, high));
}
inline D add_exactly(D sum, F a) { return {add_eight(sum.lo, a.lo), add_eight(sum.hi, a.hi)}; }
inline double total(D sum) {
    const __m256d four = _mm256_add_pd(sum.lo, sum.hi);
    const __m128d two =
        _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

inline unsigned bits(__m256 lo, __m256 hi) {
    return static_cast<unsigned>(_mm256_movemask_ps(lo) | _mm256_movemask_ps(hi) << 8);
}
inline unsigned is_at_least(F a, F b) {
    return bits(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
}
inline unsigned is_nan(F a) {
    return bits(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q));
}

#endif

}  // namespace
}  // namespace inferno
