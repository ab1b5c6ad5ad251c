// Sixteen lanes of float or int32, written once for each instruction set that this file is compiled
// for. Everything is in an unnamed namespace: code made for one instruction set must never be
// merged by the linker with code made for another. For the same reason kernels use no templates of
// the standard library.
//
// The lanes' sum is a tree of fixed shape, so that it does not depend on the instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace inferno {
namespace {

inline int clip(std::int64_t lane) {
    return lane < 0 ? 0 : lane > 16 ? 16 : static_cast<int>(lane);
}

#if defined(__AVX512F__)

struct F {
    __m512 v;
};
struct I {
    __m512i v;
};

inline F zero() { return {_mm512_setzero_ps()}; }
inline F splat(float x) { return {_mm512_set1_ps(x)}; }
inline F load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F load_first(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p)};
}
inline void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
// Past the caches (a non-temporal store), to what is aligned to 64 bytes: no line is fetched first.
inline void store_streaming(float* p, F a) { _mm512_stream_ps(p, a.v); }
inline void store_first(float* p, F a, int n) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), a.v);
}
inline F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c
inline F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | 8)}; }

inline F load_bf16(const std::uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline F load_bf16_first(const std::uint16_t* p, int n) {
    const __m256i half = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
// Rounded to nearest, ties to even; NaN stays NaN. In the high halves; the low ones hold anything.
inline __m512i bf16_bits(F a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(up, is_nan, _mm512_set1_epi32(0x7fc00000));
}
inline __m256i to_bf16(F a) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(a), 16)); }
inline F round_bf16(F a) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    return {_mm512_castsi512_ps(_mm512_and_si512(bf16_bits(a), high))};
}
inline void store_bf16(std::uint16_t* p, F a) { _mm256_storeu_si256((__m256i*)p, to_bf16(a)); }
inline void store_bf16_first(std::uint16_t* p, F a, int n) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), to_bf16(a));
}
inline F load_f16(const std::uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
inline void store_f16(std::uint16_t* p, F a) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | 8));
}
inline I widen_i8(const std::int8_t* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))};
}
// Have `a` in registers here: else compilers read it anew for each product, or put off what makes it.
inline void settle(F& a) { asm volatile("" : "+v"(a.v)); }
inline void settle(I& a) { asm volatile("" : "+v"(a.v)); }
inline float sum(F a) {
    const __m256 low = _mm512_castps512_ps256(a.v);
    const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F a) { return _mm512_reduce_max_ps(a.v); }
// Lanes [begin, end) of a, and `other` in the rest. The bounds may lie outside of 0 to 16.
inline F between(F a, std::int64_t begin, std::int64_t end, float other) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 from = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(clip(begin)));
    const __mmask16 here = _mm512_mask_cmplt_epi32_mask(from, lane, _mm512_set1_epi32(clip(end)));
    return {_mm512_mask_mov_ps(_mm512_set1_ps(other), here, a.v)};
}

// a < b ? then : other
inline F where_less(F a, F b, F then, F other) {
    return {_mm512_mask_mov_ps(other.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), then.v)};
}

inline I splat_int(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I load_int(const void* p) { return {_mm512_loadu_si512(p)}; }
inline I load_int_aligned(const void* p) { return {_mm512_load_si512(p)}; }
inline I bit_and(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I bit_xor(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
inline I shift_right(I a) { return {_mm512_srli_epi32(a.v, N)}; }
template <int N>
inline I shift_left(I a) { return {_mm512_slli_epi32(a.v, N)}; }
inline I add_int(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }  // nearest, ties to even
inline F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
inline I as_int(F a) { return {_mm512_castps_si512(a.v)}; }
inline I load_u8(const std::uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))};
}
// The lanes' low bytes, which must hold -128 to 127.
inline void store_i8(std::int8_t* p, I a) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v));
}
// Byte by byte: table[code], where codes are 0 to 15.
inline I look_up(__m128i table, I codes) {
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes.v)};
}

// Each lane: acc + the two products of bfloat16 pairs, the lower first. With the bf16 instructions
// denormals count as zero; without, each product is fused in float32.
inline F dot2(F acc, I a, I b) {
#if defined(__AVX512BF16__)
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
#else
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const F low_a = {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))};
    const F low_b = {_mm512_castsi512_ps(_mm512_slli_epi32(b.v, 16))};
    const F high_a = {_mm512_castsi512_ps(_mm512_and_si512(a.v, high))};
    const F high_b = {_mm512_castsi512_ps(_mm512_and_si512(b.v, high))};
    return fma(high_a, high_b, fma(low_a, low_b, acc));
#endif
}

#else  // AVX2: a pair of registers stands for sixteen lanes

struct F {
    __m256 lo, hi;
};
struct I {
    __m256i lo, hi;
};

inline __m256i first_mask(int n) {  // n may be negative or more than 8
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F load_first(const float* p, int n) {
    return {_mm256_maskload_ps(p, first_mask(n)), _mm256_maskload_ps(p + 8, first_mask(n - 8))};
}
inline void store(float* p, F a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_streaming(float* p, F a) {
    _mm256_stream_ps(p, a.lo);
    _mm256_stream_ps(p + 8, a.hi);
}
inline void store_first(float* p, F a, int n) {
    _mm256_maskstore_ps(p, first_mask(n), a.lo);
    _mm256_maskstore_ps(p + 8, first_mask(n - 8), a.hi);
}
inline F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F round(F a) {
    return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | 8),
            _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | 8)};
}

inline __m256 widen_bf16(__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline F load_bf16(const std::uint16_t* p) {
    return {widen_bf16(_mm_loadu_si128((const __m128i*)p)),
            widen_bf16(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline F load_bf16_first(const std::uint16_t* p, int n) {
    alignas(32) std::uint16_t whole[16] = {};
    for (int i = 0; i < n; ++i) whole[i] = p[i];
    return load_bf16(whole);
}
inline __m256i bf16_bits(__m256 a) {  // in the low halves of eight lanes
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc00000), is_nan), 16);
}
inline void store_bf16(std::uint16_t* p, F a) {
    const __m256i packed = _mm256_packus_epi32(bf16_bits(a.lo), bf16_bits(a.hi));
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_bf16_first(std::uint16_t* p, F a, int n) {
    alignas(32) std::uint16_t whole[16];
    store_bf16(whole, a);
    for (int i = 0; i < n; ++i) p[i] = whole[i];
}
inline F round_bf16(F a) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(a.lo), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(a.hi), 16))};
}
inline F load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline void store_f16(std::uint16_t* p, F a) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | 8));
    _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | 8));
}
inline I widen_i8(const std::int8_t* p) {
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline void settle(F& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
inline void settle(I& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
inline float sum(F a) {
    const __m256 eight = _mm256_add_ps(a.lo, a.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F a) {
    const __m256 eight = _mm256_max_ps(a.lo, a.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline F between(F a, std::int64_t begin, std::int64_t end, float other) {
    const int from = clip(begin), to = clip(end);
    const __m256 lo = _mm256_castsi256_ps(_mm256_andnot_si256(first_mask(from), first_mask(to)));
    const __m256 hi =
        _mm256_castsi256_ps(_mm256_andnot_si256(first_mask(from - 8), first_mask(to - 8)));
    const __m256 rest = _mm256_set1_ps(other);
    return {_mm256_blendv_ps(rest, a.lo, lo), _mm256_blendv_ps(rest, a.hi, hi)};
}

inline F where_less(F a, F b, F then, F other) {
    return {_mm256_blendv_ps(other.lo, then.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(other.hi, then.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}

inline I splat_int(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I load_int(const void* p) {
    const __m256i* q = (const __m256i*)p;
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline I load_int_aligned(const void* p) {
    const __m256i* q = (const __m256i*)p;
    return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
}
inline I bit_and(I a, I b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline I bit_xor(I a, I b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
template <int N>
inline I shift_right(I a) { return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)}; }
template <int N>
inline I shift_left(I a) { return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)}; }
inline I add_int(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline F to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I to_int(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline F as_float(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline I as_int(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
inline I load_u8(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline void store_i8(std::int8_t* p, I a) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i*)p, bytes);
}
inline I look_up(__m128i table, I codes) {
    const __m256i both = _mm256_broadcastsi128_si256(table);
    return {_mm256_shuffle_epi8(both, codes.lo), _mm256_shuffle_epi8(both, codes.hi)};
}

inline __m256 dot2_half(__m256 acc, __m256i a, __m256i b) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    const __m256 low_a = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
    const __m256 low_b = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    const __m256 high_a = _mm256_castsi256_ps(_mm256_and_si256(a, high));
    const __m256 high_b = _mm256_castsi256_ps(_mm256_and_si256(b, high));
    return _mm256_fmadd_ps(high_a, high_b, _mm256_fmadd_ps(low_a, low_b, acc));
}
inline F dot2(F acc, I a, I b) {
    return {dot2_half(acc.lo, a.lo, b.lo), dot2_half(acc.hi, a.hi, b.hi)};
}

#endif

inline F load_i8(const std::int8_t* p) { return to_float(widen_i8(p)); }

}  // namespace
}  // namespace inferno
