// The exponential of sixteen lanes.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

// e^x for x up to 88, to about 2 ulp; 0 below -87.3 (no denormals), for -inf too; NaN stays NaN.
// Cephes' polynomial over [-ln2/2, ln2/2], and the exponent put in place.
inline F exp(F x) {
    const F least = splat(-87.33654f);
    const F n = round(mul(max(x, least), splat(1.442695041f)));
    F r = fma(n, splat(-0.693359375f), max(x, least));
    r = fma(n, splat(2.12194440e-4f), r);
    F p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = fma(p, mul(r, r), add(r, splat(1.0f)));
    const I power = shift_left<23>(add_int(to_int(n), splat_int(127)));
    const F result = mul(p, as_float(power));
#if defined(__AVX512F__)
    const __mmask16 is_below = _mm512_cmp_ps_mask(x.v, least.v, _CMP_LT_OQ);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512 masked = _mm512_mask_mov_ps(result.v, is_below, _mm512_setzero_ps());
    return {_mm512_mask_mov_ps(masked, is_nan, x.v)};
#else
    const __m256 below_lo = _mm256_cmp_ps(x.lo, least.lo, _CMP_LT_OQ);
    const __m256 below_hi = _mm256_cmp_ps(x.hi, least.hi, _CMP_LT_OQ);
    const __m256 nan_lo = _mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q);
    const __m256 nan_hi = _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q);
    return {_mm256_blendv_ps(_mm256_andnot_ps(below_lo, result.lo), x.lo, nan_lo),
            _mm256_blendv_ps(_mm256_andnot_ps(below_hi, result.hi), x.hi, nan_hi)};
#endif
}

}  // namespace
}  // namespace inferno
