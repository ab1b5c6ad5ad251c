// The exponential of sixteen lanes.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

constexpr float kLeastExponent = -87.33654f;  // below, e^x is denormal

// e^x from kLeastExponent to 88, to about 2 ulp: Cephes' polynomial over [-ln2/2, ln2/2], and the
// exponent put in place.
inline F exp_within(F x) {
    const F n = round(mul(x, splat(1.442695041f)));
    F r = fma(n, splat(-0.693359375f), x);
    r = fma(n, splat(2.12194440e-4f), r);
    F p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = fma(p, mul(r, r), add(r, splat(1.0f)));
    const I power = shift_left<23>(add_int(to_int(n), splat_int(127)));
    return mul(p, as_float(power));
}

// e^x from kLeastExponent to 0, to about 2 ulp, by multiplications and additions that each round:
// the steps of `exponential` in ops/reference/sampling.py, so that every device gives the same bits.
// (A fused multiply-add would be another function; the build forbids the compiler to make one.)
inline F exp_unfused(F x) {
    const F n = round(mul(x, splat(1.442695041f)));
    F r = sub(x, mul(n, splat(0.693359375f)));
    r = add(r, mul(n, splat(2.12194440e-4f)));
    F p = splat(1.9875691500e-4f);
    p = add(mul(p, r), splat(1.3981999507e-3f));
    p = add(mul(p, r), splat(8.3334519073e-3f));
    p = add(mul(p, r), splat(4.1665795894e-2f));
    p = add(mul(p, r), splat(1.6666665459e-1f));
    p = add(mul(p, r), splat(5.0000001201e-1f));
    p = add(mul(p, mul(r, r)), add(r, splat(1.0f)));
    const I power = shift_left<23>(add_int(to_int(n), splat_int(127)));
    return mul(p, as_float(power));
}

// The same as exp_within for all x up to 88: 0 where e^x would be denormal, for -inf too; NaN stays NaN.
inline F exp(F x) {
    const F least = splat(kLeastExponent);
    const F result = exp_within(max(x, least));
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
